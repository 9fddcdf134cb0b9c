"""Pairs of which only some splits have files: the others are cut off from train, each by its own fraction."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.data.sources.base import SPLITS
from seqtrain.data.sources.parallel import Parallel

NUM_PAIRS = 40


def put_train(folder: Path) -> str:
    rows = "".join(f"one {number}\tother {number}\n" for number in range(NUM_PAIRS))
    (folder / "train.tsv").write_text(f"source\ttarget\n{rows}")
    return str(folder / "train.tsv")


@pytest.mark.parametrize(
    ("own", "expected"),
    [((), [28, 4, 8]), (("validation",), [32, 2, 8]), (("test",), [36, 4, 2]), (("validation", "test"), [40, 2, 2])],
    ids=["none", "validation", "test", "both"],
)
def test_only_a_split_without_files_is_cut_off_from_train(
    own: tuple[str, ...], expected: list[int], tmp_path: Path
) -> None:
    for split in own:
        (tmp_path / f"{split}.tsv").write_text("source\ttarget\na\tb\nc\td\n")
    paths = {f"{split}_path": str(tmp_path / f"{split}.tsv") for split in own}
    source = Parallel(path=put_train(tmp_path), **paths, validation_fraction=0.1, test_fraction=0.2)
    source.check()
    assert [len(list(source.rows(split))) for split in SPLITS] == expected
