"""The data of a run and its vocabularies, which its directory holds completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.sources.tokens import TokenSource
from seqtrain.distributed import ranks
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.experiment.leak_check import check_leaks, may_leak, say_leaks_unknown
from seqtrain.runs.directory import SUMMARY, Run
from seqtrain.runs.identity import LIMITS, decisive, shown
from seqtrain.runs.summary import Summary
from seqtrain.training.data import make_data
from seqtrain.training.splits import Data


def read_run_data(run: Run, config: DictConfig, summary: Summary, checkpoint: Path | None) -> Data:
    """Read the data with the run's own vocabularies, if it has them.

    Args:
        run: The run.
        config: Its config.
        summary: Summary of the attempt; what identifies the data is added to it.
        checkpoint: The checkpoint that the attempt continues from; None at the first step.

    Raises:
        UserError: If the text is not what the run began with.
    """
    recorded = summary.hashes
    if checkpoint is not None and not recorded:
        raise UserError(
            f"{run.path / SUMMARY}: does not say which text the run began with; put the run's own file back"
        )
    missing = Preprocessor.missing(run.path, recorded)
    known = None if missing else Preprocessor.load(run.path, recorded)  # all or none: they are made together
    data = ranks.run_on_all(lambda: make_data(config, ("train", "validation"), say, known, summary.data))
    hashes = {split: rows.hash for split, rows in data.rows.items()} | data.preprocessor.hashes
    _check_same_on_all(config, hashes)
    # Weights would be continued on another text or vocabulary, with another meaning, and without a sign of it.
    for name, value in recorded.items():
        if name in data.preprocessor.hashes and hashes[name] != value:
            raise UserError(
                f"{run.path / name}.json: is missing, and what is made now is another; put the run's own back"
            )
        if name in hashes and hashes[name] != value:
            raise UserError(f"data: the {name} text is not the one that run {run.path} began with; start a new run")
    sizes = {split: rows.size for split, rows in data.rows.items()}
    summary.update(hashes=hashes, data=data.source.describe(), sizes=sizes)
    if isinstance(data.source, TokenSource):
        say_leaks_unknown(config.init_from, summary)
    elif may_leak(data.source):
        check_leaks(run, config.init_from, data.rows, summary)
    if missing:
        if recorded:
            say(f"{', '.join(missing)}: missing, made again from the text of train")
        # Before the first file: where a process is killed between any two, the next one makes all of them again,
        # and knows whether they are the same.
        run.update_summary(hashes=hashes)
        if run.writes:
            data.preprocessor.save(run.path)
    return data


def _check_same_on_all(config: DictConfig, hashes: dict[str, str]) -> None:
    """Raise UserError if another process of the run has other options or data than the first."""
    plain: Any = OmegaConf.to_container(config, resolve=True)  # what the environment of each process says
    own = decisive(plain) | {f"trainer.{name}": plain["trainer"][name] for name in LIMITS}
    own |= {f"the hash of {name}": value for name, value in hashes.items()}
    first, *others = ranks.all_gather(own)
    for rank, other in enumerate(others, 1):
        for key in {**first, **other}:
            if first.get(key) != other.get(key):
                raise UserError(
                    f"process {rank}: {key} is {shown(other.get(key))}, and {shown(first.get(key))} in process 0; "
                    "give all processes the same options and data"
                )
