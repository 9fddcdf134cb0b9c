"""Laws of `seqtrain predict` with a run that answers for whole series."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Seqtrain


def test_what_is_not_read_of_a_long_series_is_said_and_flags_of_forecasts_are_refused(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    rows = [[n, n + 1, 9, 1, 2, 3, 5, 8, 1, 2][: 8 + n % 3] for n in range(12)]
    lines = ["\t".join(["xy"[n % 2], *map(str, row)]) for n, row in enumerate(rows)]
    (tmp_path / "a_TRAIN.tsv").write_text("\n".join(lines) + "\n")
    train = "train task=classify data=ucr data.path=a_TRAIN.tsv data.max_length=8 model=gru model.dim=4 logger=none"
    answer = seqtrain(*train.split(), "trainer.max_steps=1", "run_dir=run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert "examples are cut to data.max_length=8 tokens; baselines read them whole" in answer.err
    (samples,) = (tmp_path / "run/samples").glob("*.txt")
    assert "validation series 1 (8 steps)" in samples.read_text()  # not the first row of a file
    found = seqtrain("predict", "run", "a_TRAIN.tsv", cwd=tmp_path)
    assert found.rc == 0, found.err
    assert "8 series are longer than data.max_length=8 steps: only their beginning was read" in found.err
    assert "a_TRAIN.tsv: the first column is taken for the label of each series, and not for a value" in found.err
    for flags in (["--intervals"], ["--plot", "fan.png"]):
        refused = seqtrain("predict", "run", "a_TRAIN.tsv", *flags, cwd=tmp_path)
        assert (refused.rc, refused.err.count("\n")) == (2, 1)
        assert f"{flags[0]}" in refused.err
        assert "forecasts no series; leave it out" in refused.err
