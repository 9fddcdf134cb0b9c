"""Laws of regression: the scale is train's and is undone in every answer, ranks are exact whatever the batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from seqtrain.data.preprocess import Preprocessor, prepare_rows
from seqtrain.data.sources.algorithmic import NUMBERS, SpelledSums
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import Word
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.tasks.regress import quality
from tests.conftest import Seqtrain

SHORT = (
    *("task=regress", "data.terms=3", "data.size=2000", "model.dim=48", "trainer.max_steps=200"),
    *("trainer.validate_every=200", "logger=none", "trainer.accelerator=cpu", "trainer.threads=1"),
)


def test_a_sum_has_the_value_that_its_words_say_and_comes_once() -> None:
    texts = []
    for split in ("train", "validation", "test"):
        for row in SpelledSums(size=500).rows(split):
            words = row["text"].split()
            value = NUMBERS.index(words[0])
            for sign, number in zip(words[1::2], words[2::2], strict=True):
                value += NUMBERS.index(number) * (1 if sign == "plus" else -1)
            assert float(row["label"]) == value
            texts.append(row["text"])
    assert len(set(texts)) == len(texts) == 500


def test_spearman_is_that_of_scipy_with_ties_too() -> None:
    found, true = np.random.default_rng(0).normal(size=(2, 50))
    for one, other in ((found, true), (found.round(), true.round())):
        assert quality(one, other)["spearman"] == pytest.approx(spearmanr(one, other)[0])
    assert quality(np.zeros(50), true)["spearman"] == 0, "of one number for all no ranks can be told"


def prepared(folder: Path, train: list[float], other: list[float]) -> Preprocessor:
    for name, numbers in (("train", train), ("validation", other)):
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"a b\t{number}\n" for number in numbers))
    source = Text(path=str(folder / "train.tsv"), validation_path=str(folder / "validation.tsv"), label_column="label")
    options = (source, Word(), ("train", "validation"), ("text", "label"))
    return prepare_rows(*options, label_kind="number", cache=folder, say=lambda line: None)[0]  # type: ignore[arg-type]


def test_the_scale_is_of_train_alone_and_is_read_back_to_the_bit(tmp_path: Path) -> None:
    numbers = [0.1, 0.7, 12.3]
    preprocessor = prepared(tmp_path, numbers, [1e6, 2e6])
    scale = preprocessor.scale
    assert scale is not None
    assert (scale.mean, scale.std) == (float(np.mean(numbers)), float(np.std(numbers)))
    preprocessor.save(tmp_path)
    assert Preprocessor.load(tmp_path, preprocessor.hashes).scale == scale
    (tmp_path / "scale.json").write_text('{"mean": 0, "std": 2}')
    with pytest.raises(UserError, match="is not the one that this run was trained with"):
        Preprocessor.load(tmp_path, preprocessor.hashes)
    for text in ('{"mean": 0, "std": 0}', '{"mean": NaN, "std": 1}', "[]", '{"mean": 0}'):
        (tmp_path / "scale.json").write_text(text)
        with pytest.raises(UserError, match="not a scale of numbers"):
            Preprocessor.load(tmp_path, preprocessor.hashes)


def test_numbers_that_are_all_the_same_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"every row of train has the number 3; there is nothing to predict"):
        prepared(tmp_path, [3, 3, 3], [3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, seqtrain: Seqtrain) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    answer = seqtrain("train", *SHORT, "run_dir=run", cwd=folder)
    assert answer.rc == 0, answer.err
    return folder


@pytest.mark.long
def test_a_model_of_order_is_better_than_the_mean_and_a_bag_of_words(folder: Path) -> None:
    summary = Run(folder / "run").summary
    found, known = summary.metrics["validation"], summary.baselines["validation"]
    assert found["mse"] < known["bag_of_words"]["mse"] < known["mean"]["mse"]
    assert found["spearman"] > known["bag_of_words"]["spearman"]
    variance = json.loads((folder / "run" / "scale.json").read_text())["std"] ** 2
    assert found["loss"] * variance == pytest.approx(found["mse"], rel=1e-5), "one is the other in another unit"


def test_answers_have_the_unit_of_the_data_from_a_run_and_from_its_export(folder: Path, seqtrain: Seqtrain) -> None:
    assert seqtrain("export", "run", "--output", "export", cwd=folder).rc == 0
    texts = [row["text"] for row in SpelledSums(size=2000, terms=3).rows("validation")][:40]
    right = [float(row["label"]) for row in SpelledSums(size=2000, terms=3).rows("validation")][:40]
    answers = []
    for name in ("run", "export"):
        answer = seqtrain("predict", name, *texts, "--json", cwd=folder)
        assert answer.rc == 0, answer.err
        answers.append([json.loads(line)["number"] for line in answer.out.splitlines()])
    assert answers[0] == answers[1]
    mse = np.mean((np.array(answers[0]) - right) ** 2)
    assert mse < Run(folder / "run").summary.baselines["validation"]["bag_of_words"]["mse"]
