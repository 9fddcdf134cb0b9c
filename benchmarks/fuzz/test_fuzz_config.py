"""No command line breaks the law: see benchmarks/fuzz/law.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import strategies as st

from benchmarks.fuzz import values
from benchmarks.fuzz.law import Law, ask, in_process
from seqtrain.config import check
from seqtrain.experiment import start
from seqtrain.sweeps.settings import Settings, Words
from tests.support import bad_inputs
from tests.support.bad_inputs import TASKS

SHORT = ("trainer.max_steps=2", "trainer.checkpoint_every=1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, where commands run, beside what they may not touch."""
    place = bad_inputs.files(tmp_path_factory.mktemp("fuzz_config"))
    (place / "outputs").mkdir()
    return place


@pytest.mark.parametrize("task", list(TASKS))
def test_a_command_line_is_refused_in_lines_or_can_be_trained(
    task: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def question(words: list[str]) -> str | None:
        given = [*TASKS[task], *words]

        def prepare() -> None:
            composed = check.compose(given)
            start.prepare(composed.config, start.Request(overrides=given))

        return in_process(prepare)

    ask(values.overrides(TASKS[task]), question, count=30)


def test_the_words_of_a_sweep_are_refused_in_lines_or_can_be_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    base = TASKS["next_token"]

    def question(words: list[str]) -> str | None:
        def read() -> None:
            from seqtrain.sweeps.grid import combinations

            settings = Settings.read(sorted_words := Words.sort([*base, *words]))
            for overrides, _ in list(combinations(sorted_words.trial, settings.files))[:4]:
                check.compose(overrides)

        return in_process(read)

    swept = st.builds(
        lambda key, first, second: f"{key}={first},{second}",
        *(st.sampled_from(sorted(values.keys(base))), st.sampled_from(values.ODD), st.sampled_from(values.WHOLE)),
    )
    hydra = st.builds(
        lambda key, value: f"hydra{key}={value}",
        st.sampled_from(["/launcher", "/sweeper", ".sweep.dir", ".launcher.n_jobs", ".sweeper.n_trials", ".verbose"]),
        st.sampled_from([*values.ODD, *values.WHOLE, "local", "optuna", "joblib"]),
    )
    words = st.builds(lambda one, other: [*one, *other], values.overrides(base), st.lists(st.one_of(swept, hydra)))
    ask(words, question, count=30)


@pytest.mark.parametrize("task", list(TASKS))
def test_a_command_line_trains_two_steps_or_is_refused(task: str, folder: Path, law: Law) -> None:
    inside = folder.parent / f"in_{task}"
    shutil.copytree(folder, inside, symlinks=True)

    def question(words: list[str]) -> str | None:
        dry = ["--dry-run"] if sum(map(ord, "".join(words))) % 3 else []
        shutil.rmtree(inside / "outputs", ignore_errors=True)
        return law.flaw("train", *TASKS[task], *SHORT, *dry, *words, cwd=inside, untouched=(folder,))

    ask(values.overrides(TASKS[task]), question, count=8)
