"""Laws of a run's vocabularies on disk: all or none, those that it began with; no file's absence means anything."""

from __future__ import annotations

import copy
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from omegaconf import DictConfig

from benchmarks.kills.hook import killed_before
from seqtrain.config import check
from seqtrain.data.preprocess import LABELS, TARGET_TOKENIZER, TOKENIZER, Preprocessor
from seqtrain.errors import UserError
from seqtrain.experiment.data import read_run_data
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.training.splits import Data
from tests.support.examples import files, options

SEPARATE = (*options("translation"), "task.shared_vocab=false", "tokenizer=char")
SENTIMENT = (*options("sentiment"), "tokenizer=char")


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(files(tmp_path))


@cache
def _composed(*overrides: str) -> DictConfig:
    return check.compose(overrides).config


def composed(*overrides: str) -> DictConfig:
    return copy.deepcopy(_composed(*overrides))


def begun(config: DictConfig, name: str = "run") -> Run:
    run = Run.create(name, config={"seed": 1})
    read_run_data(run, config, Summary(), None)
    return run


def again(run: Run, config: DictConfig, checkpoint: Path | None = None) -> Data:
    """What a resume reads, with what stands in the run's directory."""
    return read_run_data(run, config, run.summary, checkpoint)


@pytest.mark.long
@pytest.mark.parametrize(("overrides", "names"), [(SEPARATE, 2), (SENTIMENT, 2)], ids=["two tokenizers", "labels"])
def test_a_run_killed_between_its_vocabularies_goes_on_with_the_same_ones(
    overrides: tuple[str, ...], names: int
) -> None:
    config = composed(*overrides)
    whole = begun(config, "whole")
    expected = whole.summary.hashes
    assert len({TOKENIZER, TARGET_TOKENIZER, LABELS} & {path.name for path in whole.path.iterdir()}) == names
    for number in count():
        run = Run.create(str(number), config={"seed": 1})
        if not killed_before(number, lambda run=run: read_run_data(run, config, Summary(), None), below=run.path):
            break
        preprocessor = again(run, config).preprocessor
        assert preprocessor.hashes.items() <= expected.items()
        assert preprocessor.shared == ("target_tokenizer" not in expected)
        assert run.summary.hashes == expected
        assert Preprocessor.load(run.path, expected).hashes == preprocessor.hashes
        run.close()
    assert number >= 2 * (1 + names), "the summary and each file are opened and renamed"


@pytest.mark.parametrize("name", [TOKENIZER, TARGET_TOKENIZER, LABELS])
def test_a_file_that_is_missing_is_one_line_for_readers_and_made_again_by_a_resume(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = composed(*(SENTIMENT if name == LABELS else SEPARATE))
    run = begun(config)
    whole = (run.path / name).read_bytes()
    (run.path / name).unlink()
    with pytest.raises(UserError, match=f"{name}: is missing; restore the original file") as fault:
        Preprocessor.load(run.path, run.summary.hashes)
    assert len(fault.value.lines) == 1
    capsys.readouterr()
    again(run, config)
    assert f"{name}: missing, rebuilt from the train split" in capsys.readouterr().err
    assert (run.path / name).read_bytes() == whole


def test_a_missing_file_that_would_be_made_differently_is_refused() -> None:
    run = begun(composed(*SEPARATE))
    (run.path / TARGET_TOKENIZER).unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json: is missing, and a rebuilt one differs"):
        again(run, composed(*SEPARATE, "tokenizer=byte"))
    assert not (run.path / TARGET_TOKENIZER).exists()


def test_a_file_that_is_another_one_is_refused_and_what_no_summary_tells_is_not_guessed() -> None:
    run = begun(composed(*SEPARATE))
    for name, other in ((TOKENIZER, TARGET_TOKENIZER), (TARGET_TOKENIZER, TOKENIZER)):
        whole = (run.path / name).read_bytes()
        (run.path / name).write_bytes((run.path / other).read_bytes())
        with pytest.raises(UserError, match=f"{name}: is not the one that this run was trained with"):
            again(run, composed(*SEPARATE))
        (run.path / name).write_bytes(whole)
    for hashes in ({}, {"train": "0"}, {"target_tokenizer": "0"}):
        with pytest.raises(UserError, match="summary does not say which tokenizer it has"):
            Preprocessor.load(run.path, hashes)
    run.write_summary(Summary())
    with pytest.raises(UserError, match=r"summary\.json: does not record which data the run began with"):
        again(run, composed(*SEPARATE), checkpoint=Path("step-00000001.ckpt"))


def test_a_run_that_has_recorded_no_hashes_trusts_no_file_that_it_finds() -> None:
    config = composed(*SEPARATE)
    run = begun(config)
    expected = {name: (run.path / name).read_bytes() for name in (TOKENIZER, TARGET_TOKENIZER)}
    (run.path / TOKENIZER).write_bytes(expected[TARGET_TOKENIZER])
    run.write_summary(Summary())
    again(run, config)
    assert {name: (run.path / name).read_bytes() for name in expected} == expected
