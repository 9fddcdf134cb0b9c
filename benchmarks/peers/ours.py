"""Our side: a training as `seqtrain train` makes it, with its callbacks, record and checkpoints, in turns."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from omegaconf import DictConfig

from benchmarks.bench import recorded_session
from benchmarks.peers import cases, turns
from seqtrain.training.trainer import quiet_lightning


def train(config: DictConfig, folder: Path, report: turns.Report, commands: turns.Iterable[str]) -> None:
    """Trains turn by turn; the batches are made within them, as in any training."""
    data = cases.data_of(config)
    with recorded_session(config, data, folder / "run") as session:
        loader = cases.loader_of(data)
        report({"parameters": turns.count(session.learner), "precision": config.trainer.precision})
        session.trainer.fit(session.learner, Paused(loader, turns.Turns(loader, commands, report)))


class Paused:
    """A loader that goes on only when it is told to."""

    def __init__(self, loader: cases.TrainLoader, paused: turns.Turns) -> None:
        self.loader = loader
        self.paused = paused

    def __iter__(self) -> turns.Iterator[object]:
        return iter(self.paused)

    def __len__(self) -> int:
        return len(self.loader)


def main() -> None:
    """The process: CASE FOLDER PRECISION."""
    name, place, precision = sys.argv[1:]
    warnings.filterwarnings("ignore")
    quiet_lightning()
    folder = Path(place)
    config = cases.CASES[name].config(folder, precision)
    train(config, folder, turns.reporter(), turns.commands())


if __name__ == "__main__":
    main()
