"""No data file, run directory or checkpoint breaks the law: see benchmarks/fuzz/law.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from benchmarks.fuzz import contents, damage, states
from benchmarks.fuzz.contents import Data
from benchmarks.fuzz.damage import Damage
from benchmarks.fuzz.law import Law, ask
from seqtrain.errors import UserError
from tests.support import bad_inputs
from tests.support.bad_inputs import TASKS

SHORT = ("trainer.max_steps=2", "trainer.checkpoint_every=1", "trainer.validate_every=1", "trainer.keep_last=1")
KINDS = {
    "next_token": (*TASKS["next_token"], "model=lstm"),
    "sentiment": TASKS["sentiment"],
    "translation": (*TASKS["translation"], "task.shared_vocab=false"),
    "masked_lm": TASKS["masked_lm"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, law: Law) -> Path:
    """A folder with data, a run of each task, an export, a sweep, and what no command may touch, in `outside`."""
    place = bad_inputs.files(tmp_path_factory.mktemp("fuzz_runs"))
    (place / "outside").mkdir()
    (place / "outside" / "precious").write_text("precious")
    (place / "texts.in").write_text("a line of [MASK]\n")
    for name, words in KINDS.items():
        run = ("train", *words, *SHORT, f"run_dir={name}")
        assert law.server.run(run, cwd=place, env=law.env, timeout=100).rc == 0
    shutil.copytree(place / "next_token", place / "outside" / "other")
    grid = ("train", "-m", *KINDS["next_token"], *SHORT, "seed=1,2", "hydra.sweep.dir=sweep")
    for words in (("export", "sentiment", "--output", "exported"), grid):
        answer = law.server.run(words, cwd=place, env=law.env, timeout=100)
        assert answer.rc == 0, answer.stderr
    return place


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    """A folder with the data alone, to which runs are brought one by one."""
    names = {*KINDS, "exported", "sweep"}
    shutil.copytree(home, tmp_path / "home", ignore=lambda folder, found: names & set(found), symlinks=True)
    return tmp_path / "home"


def commands(name: str) -> tuple[tuple[str, ...], ...]:
    """What is asked of a run, an export or a sweep, which is called `it`."""
    begin = ("train", *TASKS["sentiment"], "trainer.max_steps=1", "init_from=it", "run_dir=new")
    text = ("a [MASK] b", "--length", "3") if name == "next_token" else ("a [MASK] b",)
    use = (("predict", "it", *text), ("embed", "it", "--input", "texts.in", "--output", "new.parquet"))
    if name == "sweep":
        return ("resume", "it"), ("resume", "it", "--retry-failed"), ("compare", "it"), ("compare", "it", "outside")
    if name == "exported":
        return (*use, begin, ("evaluate", "it"))
    more = ("resume", "it", "trainer.max_steps=3")
    shown = (
        ("compare", "it", "outside/other"),
        ("sync", "it", "logger=tensorboard"),
        ("export", "it", "--output", "new"),
    )
    return (more, more, ("resume", "it"), ("evaluate", "it"), *use, (*use[0], "--checkpoint", "last"), *shown, begin)


def damaged(
    law: Law, place: Path, home: Path, name: str, damages: list[Damage], command: tuple[str, ...]
) -> str | None:
    """What is wrong with how the command ends where the run is damaged in these ways."""
    for left in ("it", "new", "new.parquet"):
        path = place / left
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    shutil.copytree(home / name, place / "it")
    done = []
    for each in damages:
        try:
            done.append(each(place / "it"))
        except (
            OSError,
            ValueError,
            IndexError,
            AttributeError,
            KeyError,
            UserError,
            yaml.YAMLError,
        ):  # an earlier damage left it nothing to do
            continue
    wrong = law.flaw(*command, cwd=place, untouched=(place / "outside",))
    return wrong and f"{name}: {'; '.join(done)}: seqtrain {' '.join(command)[:120]}: {wrong}"


@pytest.mark.parametrize(
    ("name", "count"), [("next_token", 30), ("sentiment", 20), ("translation", 20), ("exported", 15), ("sweep", 10)]
)
def test_a_damaged_run_directory_is_one_line_or_still_good(
    name: str, count: int, law: Law, place: Path, home: Path
) -> None:
    several = st.lists(damage.of_files(), min_size=1, max_size=2)
    cases = st.tuples(several, st.sampled_from(commands(name)))
    ask(cases, lambda case: damaged(law, place, home, name, *case), count=count)


@pytest.mark.parametrize(
    ("name", "count"), [("next_token", 30), ("sentiment", 15), ("translation", 15), ("masked_lm", 15)]
)
def test_a_changed_checkpoint_is_one_line_or_still_good(
    name: str, count: int, law: Law, place: Path, home: Path
) -> None:
    known = [words for words in commands(name) if words[0] not in ("sync", "compare")]
    asked = st.one_of(st.just(("resume", "it", "trainer.max_steps=3")), st.sampled_from(known))
    cases = st.tuples(st.lists(states.of_checkpoints(), min_size=1, max_size=2), asked)
    ask(cases, lambda case: damaged(law, place, home, name, *case), count=count)


FILES = {
    "next_token": contents.table(["text"], ["txt", "txt", "csv", "tsv", "jsonl", "parquet"]),
    "masked_lm": contents.table(["text"], ["txt", "csv", "jsonl", "parquet"]),
    "sentiment": contents.table(["text", "label"], ["csv", "tsv", "jsonl", "parquet"]),
    "translation": contents.table(["source", "target"], ["csv", "tsv", "jsonl", "parquet"]),
    "lines": contents.table(["target"], ["txt"]),
}


@pytest.mark.parametrize("name", list(FILES))
def test_data_of_any_bytes_is_one_line_or_trains(name: str, law: Law, place: Path) -> None:
    task = "translation" if name == "lines" else name

    def question(data: Data) -> str | None:
        path = contents.write(data, place)
        words = {
            "lines": ("data.source_path=source.txt", f"data.target_path={path.name}"),
            "translation": (f"data.path={path.name}", "data.source_path=null", "data.target_path=null"),
        }.get(name, (f"data.path={path.name}",))
        how = ("--dry-run",) if len(data.content) % 3 else ("trainer.max_steps=1", "run_dir=new")
        shutil.rmtree(place / "new", ignore_errors=True)
        return law.flaw("train", *TASKS[task], *how, *words, cwd=place, untouched=(place / "outside",))

    ask(FILES[name], question, count=20)


def test_what_is_to_be_predicted_may_hold_any_bytes(law: Law, place: Path, home: Path) -> None:
    def question(case: tuple[Data, str]) -> str | None:
        data, name = case
        path = contents.write(data, place)
        return law.flaw("predict", str(home / name), "--input", path.name, cwd=place, untouched=(home / name,))

    ask(st.tuples(FILES["lines"], st.sampled_from(["sentiment", "translation", "masked_lm"])), question, count=15)
