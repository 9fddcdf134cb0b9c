"""A user's own package in which things go wrong on purpose, at chosen steps."""

from __future__ import annotations

from pathlib import Path

CODE = '''"""Things that go wrong: each is a fault of the machine, of the numbers or of somebody else's code."""

import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from pytorch_lightning import Callback
from pytorch_lightning.loggers.logger import Logger

from seqtrain.training.loggers.base import RunLogger

ARMED = os.environ.get("MISHAP")  # without it nothing goes wrong, so that a resumed run can go on
if ARMED == "clock":
    now, spent = time.time, []
    time.time = lambda: now() - 3600.0 * (spent.append(0) or len(spent))


def _name(descriptor):
    return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name


class Wild(Callback):
    """At each of `steps` the first lane of the first process, or its gradient, is no number."""

    def __init__(self, *, steps: list[int], what: str = "hidden") -> None:
        self.steps, self.what, self.hook = steps, what, None

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step + 1 in self.steps and self.what == "hidden" and trainer.is_global_zero:
            nan = float("nan")

            def break_first_lane(model, args, out):
                factor = torch.ones(len(out[0])).index_fill(0, torch.tensor(0), nan)
                broken = [x * factor.view(-1, *[1] * (x.dim() - 1)) for x in (out[0], *out[1].values())]
                return broken[0], dict(zip(out[1], broken[1:]))

            self.hook = module.model.register_forward_hook(break_first_lane)

    def on_train_batch_end(self, *args):
        if self.hook is not None:
            self.hook.remove()
            self.hook = None

    def on_after_backward(self, trainer, module):
        if trainer.global_step + 1 in self.steps and self.what == "gradient":
            next(module.parameters()).grad.fill_(float("inf"))


class Full:
    """A file that takes nothing more."""

    def __init__(self, file) -> None:
        self.file = file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        with open("/dev/full", "wb", buffering=0) as full:
            return full.write(data)


class Mishap(Callback):
    """From step `at` on `what` goes wrong, for files whose name begins with `name`."""

    def __init__(self, *, run, at: int, what: str, name: str = "") -> None:
        self.run, self.at, self.what, self.name = run, at, what, name
        self.waits = ARMED == "armed"

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.waits and trainer.global_step + 1 >= self.at:
            self.waits = False
            getattr(self, self.what)(module)

    def on_validation_batch_start(self, trainer, module, *args):
        if not self.waits and ARMED and self.what == "no_memory_to_evaluate":
            self.no_memory(module)

    def no_memory_to_evaluate(self, module):
        pass

    def no_memory(self, module):
        torch.empty(1 << 50)

    def full(self, module):
        """No space when a file of this name is brought to the disk."""
        fsync = os.fsync

        def refuse(descriptor):
            if _name(descriptor).lstrip(".").startswith(self.name):
                raise OSError(28, "No space left on device")
            fsync(descriptor)

        os.fsync = refuse

    def full_in_the_middle(self, module):
        """No file may become larger than this from here on."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))

    def full_for_records(self, module):
        """No space for another record: what is written goes to a device that is always full."""
        self.run._metrics = Full(self.run._metrics)

    def no_folder(self, module):
        """A file is in the place of the folder."""
        folder = self.run.path / self.name
        folder.rename(folder.with_name("elsewhere"))
        folder.touch()

    def killed(self, module):
        """Killed just before a file of this name gets it."""
        replace = os.replace

        def die(source, target):
            if Path(target).name.startswith(self.name):
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        os.replace = die


class Raises(Logger):
    """A plain logger of Lightning that fails at step 5."""

    def __init__(self, *, directory) -> None:
        super().__init__()

    name, version = "raises", ""

    def log_hyperparams(self, params, *args, **kwargs):
        pass

    def log_metrics(self, metrics, step=None):
        if step >= 5:
            raise ConnectionError("the host\\nis gone")


class Hangs(RunLogger):
    """A sink that never answers from step 5 on."""

    def __init__(self, *, directory, config) -> None:
        super().__init__("Hangs", directory)
        from seqtrain.training.loggers import base

        base.MAX_CALL_SECONDS = 0.2

    def _metrics(self, metrics, step):
        if step >= 5:
            time.sleep(3600)

    def _text(self, name, text, step):
        pass

    def _image(self, name, path, step):
        pass

    def _end(self, success):
        time.sleep(3600)
'''
MISHAP = "mishap:\n  _target_: my_package.mishaps.Mishap\n  at: ???\n  what: ???\n  name: ''\n"
WILD = "wild:\n  _target_: my_package.mishaps.Wild\n  steps: ???\n  what: hidden\n"
FILES = {
    "my_package/mishaps.py": CODE,
    "my_configs/callbacks/mishap.yaml": MISHAP,
    "my_configs/callbacks/wild.yaml": WILD,
    "my_configs/logger/raises.yaml": "raises: {_target_: my_package.mishaps.Raises}\n",
    "my_configs/logger/hangs.yaml": "hangs: {_target_: my_package.mishaps.Hangs}\n",
}
TRUST = ("--trust", "my_package")
OPTIONS = ("--config-dir", "my_configs", *TRUST)


def package(folder: Path) -> dict[str, str | None]:
    """Writes the package and its configs; gives the environment that finds them and lets things go wrong."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {"PYTHONPATH": str(folder), "MISHAP": "armed"}
