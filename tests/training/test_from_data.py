"""Laws of the defaults that follow from the data: by its size alone, once, said, and kept in the run's config."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from seqtrain.config import check
from seqtrain.data.sources.base import Source
from seqtrain.data.tokenizers.recipes import Word, least_count
from seqtrain.runs.directory import Run
from seqtrain.training import data
from seqtrain.training.data import make_data, make_source
from tests.conftest import Seqtrain

TRAIN = ("train", "task=sentiment", "data=labelled", "data.path=rows.tsv", "model=cbow", "model.dim=8")
QUIET = ("trainer.accelerator=cpu", "trainer.threads=1", "logger=none", "callbacks=none")


def rows(folder: Path, count: int, *, rare: bool = True) -> Path:
    """Writes labelled rows of ten words that come often, and, where asked for, one that comes once."""
    lines = ["text\tlabel\n"]
    for number in range(count):
        once = f" rare{number}" if rare and number % 2 else ""
        lines.append(f"{' '.join('abcdefghij')} word{number % 3}{once}\t{'yes' if number % 3 else 'no'}\n")
    (folder / "rows.tsv").write_text("".join(lines))
    return folder


def source(folder: Path, *options: str) -> tuple[DictConfig, Source]:
    """The config of a run on the rows, and their source."""
    path = f"data.path={folder / 'rows.tsv'}"
    config = check.compose([*TRAIN[1:3], path, *options]).config
    return config, make_source(config)


def test_words_that_occur_once_are_unknown_where_most_of_the_text_is_left() -> None:
    for text, least in {
        "a a a a a b b b c": 2,
        "a a b b": 1,  # none comes once: nothing would be read as <unk>
        "a b c d e f": 1,  # all would be
        "a a b c": 1,  # half would be
    }.items():
        counts = Counter(text.split())
        assert least_count(counts) == least, text
        assert len(Word(min_count="auto").train([text]).tokens) == 2 + sum(n >= least for n in counts.values()), text
    assert least_count(Counter()) == 1


def test_what_the_user_or_an_experiment_sets_does_not_follow_from_the_data(tmp_path: Path) -> None:
    config, rows_of = source(rows(tmp_path, 200), "tokenizer.min_count=3", "trainer.max_steps=7")
    assert data.resolve_tokenizer(config, rows_of) == []
    assert config.tokenizer.min_count == 3
    assert data.open_keys(config) == ["data.batch_tokens", "trainer.validate_every"]


RECIPES = sorted(path.stem for path in Path(str(files("seqtrain.conf"))).glob("experiment/*.yaml"))


def test_a_published_recipe_names_all_that_a_task_would_recommend() -> None:
    for name in (name for name in RECIPES if name.startswith(("sst", "review"))):
        config = check.compose([f"experiment={name}", "data.path=a.tsv"]).config
        assert data.open_keys(config) == [], name
        # What a task recommends may change; the figures of a recipe are of the values in its own file.
        plain = OmegaConf.to_container(config, resolve=False)
        assert isinstance(plain, dict)
        assert "_recommend_" not in str(plain["model"]["dropout"]), name


def test_a_training_is_five_epochs_but_neither_too_short_nor_endless() -> None:
    for epoch, steps in ((1, 400), (80, 400), (81, 405), (4000, 20_000), (10**6, 20_000)):
        assert data.steps_for(epoch) == steps, epoch


@pytest.mark.parametrize(("words", "tokens"), [(8, 1024), (300, 16 * 300)])
def test_a_step_holds_sixteen_examples_of_mean_length(tmp_path: Path, words: int, tokens: int) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{'good ' * words}\t{number % 2}\n" for number in range(20)))
    config = check.compose(["task=sentiment", "data=labelled", f"data.path={path}", "model=cbow"]).config
    lines: list[str] = []
    make_data(config, ("train",), lines.append)
    assert config.data.batch_tokens == tokens
    assert any(line.startswith(f"data.batch_tokens {tokens:,}: ") for line in lines)


def test_what_follows_from_the_data_depends_on_the_task() -> None:
    def open_keys(task: str) -> list[str]:
        return data.open_keys(check.compose([f"task={task}"]).config)

    for task in ("next_token", "masked_lm", "regress"):
        assert open_keys(task) == []
    assert open_keys("sentiment") == list(data.KEYS)
    assert open_keys("tag") == ["data.batch_tokens", "trainer.max_steps", "trainer.validate_every"]
    assert open_keys("translation") == ["trainer.max_steps", "trainer.validate_every"]


def test_dropout_begins_at_0_where_the_data_is_made_up_and_nowhere_else() -> None:
    for task in ("sentiment", "tag"):
        for model in ("lstm", "bert", "cnn"):
            made_up = check.compose([f"task={task}", f"model={model}"]).config
            assert made_up.model.dropout == made_up.task.dropout == 0
            assert len(data.dropout_note(made_up)) == 1
            config = check.compose([f"task={task}", f"model={model}", "data=labelled", "data.path=a.tsv"]).config
            assert config.model.dropout > 0
            assert config.task.dropout > 0


@pytest.mark.long
def test_a_run_says_what_followed_and_keeps_it(tmp_path: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain(*TRAIN, *QUIET, "run_dir=run", cwd=rows(tmp_path, 60))
    assert answer.rc == 0, answer.err
    run = Run(tmp_path / "run")
    followed = dict(zip(data.KEYS, (2, 1024, 400, 40), strict=True))
    assert run.summary.from_data == followed
    for key, value in followed.items():
        assert OmegaConf.select(OmegaConf.create(run.config), key) == value
        assert f"{key} {value:,}: " in answer.err
    unknown = run.summary.unknown
    assert unknown is not None
    assert unknown["validation"] > 0
    assert "validation: " in answer.err
    assert "of the tokens are <unk>\n" in answer.err
    # What it trains again from its config is the same run: nothing follows a second time.
    again = seqtrain("resume", "run", "trainer.max_steps=402", cwd=tmp_path)
    assert again.rc == 0, again.err
    assert "tokenizer.min_count" not in again.err
    assert Run(tmp_path / "run").summary.from_data == followed


def test_an_unknown_token_that_train_never_has_is_told(tmp_path: Path, seqtrain: Seqtrain) -> None:
    rows(tmp_path, 60)
    given = (*TRAIN, *QUIET, "tokenizer.min_count=1", "trainer.max_steps=2")
    answer = seqtrain(*given, "run_dir=run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert "of the tokens are <unk>, a token that never occurs in train; tokenizer.min_count=2 trains it" in answer.err


def test_epochs_that_are_asked_for_count_and_a_dry_run_says_the_same(tmp_path: Path, seqtrain: Seqtrain) -> None:
    rows(tmp_path, 60)
    answer = seqtrain(*TRAIN, *QUIET, "trainer.max_epochs=3", "dry_run=true", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert "trainer.max_steps" not in answer.err
    assert "trainer.validate_every 1: " in answer.err
    answer = seqtrain(*TRAIN, *QUIET, "--dry-run", "--json", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert "trainer.max_steps 400: " in answer.err
    assert json.loads(answer.out)


@pytest.mark.long
def test_a_budget_comes_before_what_follows_from_the_data(tmp_path: Path, seqtrain: Seqtrain) -> None:
    rows(tmp_path, 60)
    answer = seqtrain(*TRAIN, *QUIET, "budget=flops:1e6", "run_dir=run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    run = Run(tmp_path / "run")
    assert run.summary.from_data.keys() == set(data.KEYS)
    assert run.config["trainer"]["max_steps"] == run.summary.steps
    assert run.summary.steps not in (None, data.MIN_STEPS)
    assert "trainer.max_steps 4" not in answer.err


@pytest.mark.long
def test_with_init_from_the_tokenizer_is_not_said_to_follow(tmp_path: Path, seqtrain: Seqtrain) -> None:
    rows(tmp_path, 60)
    gru = (*TRAIN[:-2], "model=gru", TRAIN[-1], *QUIET)  # with weights of its own, beside the embedding
    first = seqtrain(*gru, "tokenizer.min_count=3", "trainer.max_steps=2", "run_dir=first", cwd=tmp_path)
    assert first.rc == 0, first.err
    for more in (["dry_run=true"], ["run_dir=run"]):
        answer = seqtrain(*gru, "trainer.max_steps=2", "init_from=first", *more, cwd=tmp_path)
        assert answer.rc == 0, answer.err
        assert "tokenizer.min_count" not in answer.err
    run = Run(tmp_path / "run")
    assert run.config["tokenizer"]["min_count"] == 3
    assert run.summary.from_data.keys() == {"data.batch_tokens", "trainer.validate_every"}


def test_the_clock_decides_where_it_is_asked_to(tmp_path: Path, seqtrain: Seqtrain) -> None:
    rows(tmp_path, 60)
    answer = seqtrain(*TRAIN, *QUIET, "budget=seconds:0.5", "run_dir=run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert Run(tmp_path / "run").summary.ended_by == "seconds"
    assert Run(tmp_path / "run").config["trainer"]["max_steps"] is None


@pytest.mark.long
def test_evaluate_holds_a_split_against_what_baselines_learn_from_train(tmp_path: Path, seqtrain: Seqtrain) -> None:
    rows(tmp_path, 60)
    given = (*TRAIN, *QUIET, "trainer.max_steps=2", "data.test_fraction=0.2")
    answer = seqtrain(*given, "run_dir=run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    plain = json.loads(seqtrain("evaluate", "run", "--split", "test", "--json", cwd=tmp_path).out)
    assert "baselines" not in plain
    found = json.loads(seqtrain("evaluate", "run", "--split", "test", "--json", "--baselines", cwd=tmp_path).out)
    assert found["metrics"] == plain["metrics"]
    # The word at the end of a row tells its label, so that counts of words are never wrong.
    assert found["baselines"]["naive_bayes"] == found["baselines"]["linear"] == {"accuracy": 1.0}
    shown = seqtrain("evaluate", "run", "--split", "test", "--baselines", cwd=tmp_path).out
    assert "  linear         " in shown
    assert "the linear model." in shown
    of_train = json.loads(seqtrain("evaluate", "run", "--split", "train", "--json", "--baselines", cwd=tmp_path).out)
    assert of_train["baselines"]["linear"] == {"accuracy": 1.0}
