"""A user's own package and configs, outside the repository."""

from __future__ import annotations

from pathlib import Path

MODEL = '''"""A fading sum of what was read."""

import torch

from seqtrain.models.base import Capability, SequenceModel, read_by_length


class Mine(SequenceModel):
    """h_t = h_{t-1} / 2 + embed(x_t); after `sound` training steps it is no number any more."""

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.UNCONDITIONAL

    def __init__(self, *, embed, dim: int, sound: int | None = None) -> None:
        super().__init__()
        self.embed, self.dim, self.sound = embed, dim, sound
        self.scale = torch.nn.Parameter(torch.ones(dim))
        self.read = 0

    def initial(self, batch):
        return {"hidden": self.scale.new_zeros(batch, self.dim)}

    def forward(self, tokens, state=None, lengths=None):
        state = self.initial(len(tokens)) if state is None else state
        self.read += self.training
        return self._step(tokens, state) if lengths is None else read_by_length(self._step, tokens, state, lengths)

    def _step(self, tokens, state):
        hidden = state["hidden"]
        fate = float("nan") if self.sound is not None and self.read > self.sound else 1.0
        steps = []
        for x in self.embed(tokens).unbind(1):
            hidden = hidden / 2 + x
            steps.append(hidden)
        return torch.stack(steps, 1) * self.scale * fate, {"hidden": hidden}
'''
CONFIG = """_target_: my_package.mine.Mine
dim: 16
sound: null
"""
LOGGER = """from pytorch_lightning.loggers import Logger


class Mine(Logger):
    name, version = "mine", ""

    def __init__(self, *, api_key: str, uri: str):
        super().__init__()

    def log_metrics(self, metrics, step=None): ...

    def log_hyperparams(self, params): ...
"""
LOGGER_CONFIG = """mine:
  _target_: my_package.logs.Mine
  api_key: null
  uri: null
"""
OPTIONS = ("--config-dir", "my_configs", "model=mine")
TRUST = ("--trust", "my_package")


def package(folder: Path) -> dict[str, str]:
    """Writes my_package/mine.py and my_configs/model/mine.yaml; gives the environment that finds the package."""
    for name, text in (
        ("my_package/mine.py", MODEL),
        ("my_package/logs.py", LOGGER),
        ("my_configs/model/mine.yaml", CONFIG),
        ("my_configs/logger/mine.yaml", LOGGER_CONFIG),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {"PYTHONPATH": str(folder)}
