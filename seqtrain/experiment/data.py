"""Data of a run, read with its own vocabularies, and the search for leaks between its splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from seqtrain.config.options import origins
from seqtrain.data import leaks
from seqtrain.data.leaks import MAX_KEPT, Leak, Sketch
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.sources.base import SPLITS, Source
from seqtrain.data.sources.series import SeriesSource
from seqtrain.data.sources.tokens import TokenSource
from seqtrain.distributed import ranks
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists
from seqtrain.runs.directory import SUMMARY, Run
from seqtrain.runs.identity import LIMITS, decisive, shown
from seqtrain.runs.leaks import MIN_SAID, SKETCH, in_words, is_grave, notes, place_of_kept, worst
from seqtrain.runs.summary import Summary
from seqtrain.tasks.base import Say
from seqtrain.training.data import make_data, make_source
from seqtrain.training.splits import Data

if TYPE_CHECKING:
    from seqtrain.inference.opened import Opened


def read_run_data(run: Run, config: DictConfig, summary: Summary, checkpoint: Path | None) -> Data:
    """Read the data with the run's own vocabularies, if it has them.

    Args:
        run: The run.
        config: Its config.
        summary: Summary of the attempt; hashes and sizes of the data are added to it.
        checkpoint: The checkpoint that the attempt continues from; None at the first step.

    Raises:
        UserError: If the data has changed since the run began.
    """
    recorded = summary.hashes
    if checkpoint is not None and not recorded:
        raise UserError(
            f"{run.path / SUMMARY}: does not record which data the run began with; restore the original file"
        )
    missing = Preprocessor.missing(run.path, recorded)
    known = None if missing else Preprocessor.load(run.path, recorded)  # all or none: they are built together
    data = ranks.run_on_all(lambda: make_data(config, ("train", "validation"), say, known))
    hashes = {split: rows.hash for split, rows in data.rows.items()} | data.preprocessor.hashes
    _check_same_on_all(config, hashes)
    # Otherwise training would silently continue on other data, or with another meaning of each token.
    for name, value in recorded.items():
        if name in data.preprocessor.hashes and hashes[name] != value:
            raise UserError(f"{run.path / name}.json: is missing, and a rebuilt one differs; restore the original file")
        if name in hashes and hashes[name] != value:
            raise UserError(f"data: the {name} split has changed since run {run.path} began; start a new run")
    sizes = {split: rows.size for split, rows in data.rows.items()}
    summary.update(hashes=hashes, data=data.source.describe(), sizes=sizes)
    if isinstance(data.source, TokenSource):
        say_leaks_unknown(config.init_from, summary)
    elif may_leak(data.source):
        check_leaks(run, config.init_from, data.rows, summary)
    if missing:
        if recorded:
            say(f"{', '.join(missing)}: missing, rebuilt from the train split")
        # Record the hashes before the first file: if a process is killed between two files, the next one builds all
        # of them again and can check that they are the same.
        run.update_summary(hashes=hashes)
        if run.writes:
            data.preprocessor.save(run.path)
    return data


def _check_same_on_all(config: DictConfig, hashes: dict[str, str]) -> None:
    """Raise UserError if another process of the run has other options or data than the first."""
    plain: Any = OmegaConf.to_container(config, resolve=True)  # resolved with the environment of this process
    own = decisive(plain) | {f"trainer.{name}": plain["trainer"][name] for name in LIMITS}
    own |= {f"the hash of {name}": value for name, value in hashes.items()}
    first, *others = ranks.all_gather(own)
    for rank, other in enumerate(others, 1):
        for key in {**first, **other}:
            if first.get(key) != other.get(key):
                raise UserError(
                    f"process {rank}: {key} is {shown(other.get(key))}, but {shown(first.get(key))} in process 0; "
                    "give all processes the same options and data"
                )


def open_with_data(
    path: str,
    split: Any,
    checkpoint: str,
    *,
    test_set: str | None = None,
    with_train: bool = False,
    note: Say = say,
) -> tuple[Opened, Data]:
    """Open a run for use, and read a split of its data as it was read for training.

    Args:
        path: The run's directory. An export does not work, because it does not record its data.
        split: "train", "validation" or "test".
        checkpoint: "best" or "last".
        test_set: Name in `data.test_paths`, if there are several test sets.
        with_train: Read train as well.
        note: Called with each line about the data.

    Raises:
        UserError: If there is no such run or split, or its text has changed.
    """
    from seqtrain.inference.opened import open_run

    Run.open(path)  # raises for an export, which `open_run` accepts
    opened = open_run(path, checkpoint)
    config = opened.config
    if test_set is not None:
        # The code below supports a single test split.
        config.data.test_path, config.data.test_paths = config.data.test_paths[test_set], None
    source = make_source(config)
    if not source.has(split):
        raise UserError(f"--split {split}: run {path} has no such split; create one with data.{split}_fraction")
    source.check()
    splits = [split]
    if with_train and split != "train":
        splits.append("train")
    data = make_data(config, splits, note, opened.preprocessor)
    # A test split has no hash yet: training never reads it.
    known = opened.run.summary.hashes.get(split)
    if known is not None and known != data.rows[split].hash:
        raise UserError(f"--split {split}: the data has changed since run {path} was trained on it")
    for before in SPLITS[: SPLITS.index(split)]:
        known = opened.run.summary.hashes.get(before)
        # Windows of a split read rows before it, unless each series is an example of its own, with a label or a text.
        if not isinstance(source, SeriesSource) or data.rows[split].labels is not None or data.rows[split].columns:
            continue
        if known is not None and known != source.split(before).hash:
            raise UserError(f"--split {split}: the rows before it have changed since run {path} was trained on them")
    return opened, data


def may_leak(source: Source) -> bool:
    """Return False if the source guarantees disjoint splits by `is_disjoint = True`.

    Synthetic sequences may share long stretches, such as blanks, and still be different examples.
    """
    return not getattr(source, "is_disjoint", False)


def check_leaks(run: Run, init_from: str | Sequence[str] | None, rows: dict[Any, Rows], summary: Summary) -> None:
    """Measure how much of validation is in the training text, record and print it, and save a sketch of that text.

    Args:
        run: The run. The sketch is saved in its directory, for later runs that start from this one.
        init_from: The run, or the two runs, whose weights it starts from.
        rows: Rows of train and validation.
        summary: Summary of the attempt.
    """
    if summary.leaks and exists(run.path / SKETCH):  # from an earlier attempt on the same text
        return
    if rows["train"].series is not None:  # split by time or by series: no row is in two splits
        return
    train = leaks.trained_text(rows["train"])
    asked = leaks.sketches(rows["validation"])
    found: dict[str, Any] = {"train": _plain(leaks.find_leak(asked, train))}
    whole = train
    if init_from is not None:
        parent = _parent_sketch(init_from)
        found["init_from"] = _plain(_parent_leak(asked, parent))
        # Runs that start from this one check its sketch only, so it must include the text of its parents.
        whole = train.joined(parent) if parent is not None else train.unfinished()
    summary.update(leaks={"validation": found})
    _tell(summary)
    if run.writes:
        whole.cut(MAX_KEPT).save(run.path / SKETCH)


def say_leaks_unknown(init_from: str | Sequence[str] | None, summary: Summary) -> None:
    """Record in the summary, and print, that validation was not searched for in train.

    A token store contains no text, and decoding all of it for the check would take too long.
    """
    found: dict[str, Any] = {"train": None}
    if init_from is not None:
        found["init_from"] = None
    summary.update(leaks={"validation": found})
    _tell(summary)


def leak_of(run: Run, split: str, rows: Rows) -> dict[str, Any] | None:
    """Return the share of a split that is in the training text of a finished run; print it if it is not small.

    Return None, with a message, if the run has no sketch of that text.
    """
    if rows.series is not None:
        return None
    sketch = _load(run.path)
    if sketch is None:
        say(f"{split}: unknown whether it overlaps with train, because {SKETCH} is missing")
        return None
    leak = leaks.find_leak(leaks.sketches(rows), sketch)
    if leak is not None and leak.share >= MIN_SAID:
        say(in_words(split, place_of_kept(run.config.get("init_from") is not None), leak))
    return _plain(leak)


def _tell(summary: Summary) -> None:
    reason = worst(summary)
    if reason is not None:
        say(f"{reason}; its metrics partly measure memorised text, so compare draws no conclusion from them")
    for line in notes(summary):
        say(line)


def _parent_sketch(init_from: str | Sequence[str]) -> Sketch | None:
    """Return a sketch of the text that all parents were trained on, or None if one has no sketch."""
    from seqtrain.inference.opened import open_origin

    whole: Sketch | None = None
    for path in origins(init_from):
        sketch = _load(open_origin(path).path)
        if sketch is None:
            return None
        whole = sketch if whole is None else whole.joined(sketch)
    return whole


def _load(folder: Path) -> Sketch | None:
    path = folder / SKETCH
    return Sketch.load(path) if exists(path) else None


def _parent_leak(asked: list[Sketch], parent: Sketch | None) -> Leak | None:
    """Return the leak from the parent's training text. For pairs, one side is enough: a language model has read it."""
    if parent is None:
        return None
    leak = leaks.find_leak(asked, parent, max)
    if leak is None or (not parent.whole and not is_grave(leak)):
        return None  # the unknown part of the parent's text might contain the rest
    return leak


def _plain(leak: Leak | None) -> dict[str, Any] | None:
    return None if leak is None else leak._asdict()
