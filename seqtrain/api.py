"""seqtrain from Python: train a run, open one, let it write and score text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqtrain.faults import Fault

if TYPE_CHECKING:
    from seqtrain.build import Opened
    from seqtrain.data.tokenizer import Tokenizer
    from seqtrain.interface import SequenceModel
    from seqtrain.task import Task


@dataclass(frozen=True)
class Trained:
    """A run opened for use; its model is in evaluation mode, on the CPU."""

    opened: Opened

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.opened.run.path

    @property
    def summary(self) -> dict[str, Any]:
        """What summary.json says."""
        return self.opened.run.summary

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """The final metrics by split."""
        return self.summary.get("metrics", {})

    @property
    def history(self) -> list[dict[str, Any]]:
        """Every recorded point, oldest first."""
        return self.opened.run.metrics()

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config."""
        return self.opened.run.config

    @property
    def model(self) -> SequenceModel:
        return self.opened.model

    @property
    def task(self) -> Task:
        return self.opened.task

    @property
    def tokenizer(self) -> Tokenizer:
        return self.opened.tokenizer

    def continue_texts(
        self,
        prompts: Sequence[str],
        *,
        length: int = 200,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> list[str]:
        """What the model writes after each prompt: `length` tokens; temperature 0 is greedy."""
        import torch

        from seqtrain.generate import continue_tokens

        start = self.tokenizer.start
        tokens = continue_tokens(
            self.model,
            lambda hidden: self.task.scores(self.model, hidden),  # type: ignore[operator]
            [[start, *self.tokenizer.encode(prompt).tolist()] for prompt in prompts],
            num_tokens=length,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
        lanes = torch.stack(list(tokens), 1).tolist()
        return [self.tokenizer.decode(lane) for lane in lanes]

    def score(self, text: str) -> dict[str, Any]:
        """How surprising a text is: `loss` in nats a token, `bits_per_byte`, and `tokens` with their bits each.

        `unknown` counts the tokens that are <unk>: what those hide is not in `bits_per_byte`.
        Read as evaluation reads a document: in the run's own chunks, with its own rule for carrying state.
        """
        surprisals = self._surprisals(text)
        total = sum(surprisals)
        ids = self.tokenizer.encode(text).tolist()
        return {
            "unknown": ids.count(self.tokenizer.unknown),
            "loss": total / len(surprisals),
            "bits_per_byte": total / math.log(2) / len(text.encode()),
            "tokens": [
                {"text": self.tokenizer.token_text(token), "bits": nats / math.log(2)}
                for token, nats in zip(ids, surprisals, strict=True)
            ],
        }

    def _surprisals(self, text: str) -> list[float]:
        """Nats of each token of the text."""
        import numpy as np
        import torch

        from seqtrain.build import make
        from seqtrain.data.plan import StreamPlan
        from seqtrain.data.stream import EvalLoader, Stream

        ids = self.tokenizer.encode(text)
        if not len(ids):
            raise Fault("the text to score holds no token; give one that is not empty")
        documents = np.array([0, len(ids)])
        tbptt = make(self.opened.config.tbptt, ())
        plan = StreamPlan(documents=documents, lanes=1, tbptt=tbptt, seed=0, shuffle=False)
        state, found = None, []
        with torch.no_grad():
            for batch in EvalLoader(Stream(ids, documents, self.tokenizer.start), plan, batch_size=None):
                hidden, state = self.model(batch.tokens, state if tbptt.carry else None)
                chances = self.task.scores(self.model, hidden).double().log_softmax(-1)  # type: ignore[operator]
                found += (-chances.gather(-1, batch.targets.unsqueeze(-1))).flatten().tolist()
        return found


def load(run: str | Path, *, trust: Sequence[str] = (), checkpoint: Literal["best", "last"] = "best") -> Trained:
    """Opens a run directory; nothing in it can execute. Fault when there is none or it has no checkpoint."""
    from seqtrain import build, check
    from seqtrain.runs import Run

    check.check_config(build.run_config(Run.open(run)), {}, trust=trust)
    return Trained(build.open_run(run, trust, checkpoint))


def train(*overrides: str, trust: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Trained:
    """Trains as `seqtrain train OVERRIDE ...` does and opens the run; Fault for what the caller can mend."""
    from seqtrain import check
    from seqtrain.commands.train import Request, start

    directories = tuple(map(Path, config_dirs))
    composed = check.compose(list(overrides), directories, tuple(trust))
    if composed.config.dry_run:
        raise Fault("dry_run=true: leaves no run to open; use the command line, or seqtrain.commands.train.dry_run")
    request = Request(list(overrides), tuple(trust), directories, ("seqtrain.train", *overrides))
    return load(start(composed.config, composed.choices, request).path, trust=trust)
