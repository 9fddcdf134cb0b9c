"""Laws of a number at each step: what is measured equals a plain computation, and a word without one is no target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from seqtrain.data.preprocess import Preprocessor, Rows, prepare_rows
from seqtrain.data.sources.algorithmic import NUMBERS, RunningSums, SpelledSums
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import Char, Recipe, Word
from seqtrain.tasks.base import Facts
from seqtrain.tasks.regress_steps import RegressSteps
from tests.support.refused import refusal

ROWS = ("aa b\t1 _", "b aa aa b\t3 -1 0.5 8", "b\t_", "aa b aa\t_ 4 2")
FACTS = Facts(bytes_per_token=1.0, words_per_token=None)


class Echo(torch.nn.Module):
    """Hidden states that are the tokens, as numbers in two columns."""

    max_length = None

    def encode(self, tokens, lengths=None):
        return torch.stack([tokens.float(), torch.ones_like(tokens).float()], -1)


def prepared(folder: Path, *rows: str, recipe: Recipe | None = None) -> tuple[Preprocessor, Rows]:
    (folder / "train.tsv").write_text("text\tlabel\n" + "".join(f"{row}\n" for row in rows))
    source = Text(path=str(folder / "train.tsv"), label_column="label", validation_fraction=0.0, test_fraction=0.0)
    options = (source, recipe or Word(min_count=1), ("train",), ("text", "label"))
    preprocessor, found = prepare_rows(
        *options,  # type: ignore[arg-type]
        label_kind="numbers",
        cache=folder,
        say=lambda line: None,
    )
    return preprocessor, found["train"]


def plain(task: RegressSteps, rows: Rows, read: int) -> tuple[float, float, float]:
    """Loss over words that are read, and errors over all, word by word."""
    labels = [float(x) for row in ROWS for x in row.split("\t")[1].split() if x != "_"]
    mean, std = np.mean(labels), np.std(labels)
    weight, bias = task.head.weight[0].tolist(), task.head.bias.item()
    squares, errors = [], []
    for number, row in enumerate(ROWS):
        for place, label in enumerate(row.split("\t")[1].split()):
            if label == "_":
                continue
            scaled = weight[0] * rows.columns["text"][number][place] + weight[1] + bias if place < read else 0.0
            errors.append(scaled * std + mean - float(label))
            if place < read:
                squares.append((errors[-1] / std) ** 2)
    return float(np.mean(squares)), float(np.square(errors).mean()), float(np.abs(errors).mean())


@pytest.mark.parametrize("read", [2, 9])
@pytest.mark.parametrize("cuts", [[[0, 1, 2]], [[2], [0, 1]]])
def test_the_metrics_are_those_of_every_word_that_has_a_number_however_batches_are_cut(
    tmp_path: Path, read: int, cuts: list[list[int]]
) -> None:
    preprocessor, rows = prepared(tmp_path, *ROWS)
    task = RegressSteps(dropout=0.0, dim=2, preprocessor=preprocessor)
    examples = task.examples(rows, preprocessor, max_length=read + 2, seed=0)
    assert examples.remark == "1 of 4 examples have no word with a target and are left out"
    for training in (True, False):
        totals: dict[str, list[float]] = {}
        for index in map(np.array, cuts):
            batch = examples.collate(index, 0, examples.totals(index, 0))
            assert batch.num_targets == batch.totals["loss"]
            terms, _ = task.train(training).evaluate(Echo(), batch, None)  # type: ignore[arg-type]
            for name, (total, count) in terms.items():
                before = totals.get(name, [0.0, 0])
                totals[name] = [before[0] + total.item(), before[1] + int(count)]
        found = task.measure(totals, FACTS)  # type: ignore[arg-type]
        loss, mse, mae = plain(task, rows, read)
        assert found["loss"] == pytest.approx(loss, rel=1e-5)
        if not training:
            assert (found["mse"], found["mae"]) == (pytest.approx(mse, rel=1e-5), pytest.approx(mae, rel=1e-5))


def test_a_word_without_a_number_has_no_gradient_and_is_not_nan(tmp_path: Path) -> None:
    preprocessor, rows = prepared(tmp_path, *ROWS)
    task = RegressSteps(dropout=0.0, dim=2, preprocessor=preprocessor)
    batch = task.examples(rows, preprocessor, max_length=9, seed=0).collate(np.array([0]), 0, {"loss": 1})
    hidden = Echo().encode(batch.tokens).requires_grad_()
    task.scaled = lambda *given: task.logits(None, hidden).squeeze(-1)  # type: ignore[method-assign, arg-type]
    task.evaluate(Echo(), batch, None)[0]["loss"][0].backward()  # type: ignore[arg-type, union-attr]
    assert hidden.grad is not None
    assert hidden.grad.abs().sum(-1)[0].nonzero().flatten().tolist() == [1], "only the first word has a number"


def test_the_number_of_a_word_is_at_its_last_token(tmp_path: Path) -> None:
    preprocessor, rows = prepared(tmp_path, *ROWS, recipe=Char())
    task = RegressSteps(dropout=0.0, dim=2, preprocessor=preprocessor)
    targets = task.examples(rows, preprocessor, max_length=20, seed=0).targets(np.array([1]))[0]
    #                                       start b  ' ' a    a  ' '  a    a   ' ' b
    assert [x for x in targets.tolist() if x == x] == [3, -1, 0.5, 8]
    assert targets.isnan().logical_not().nonzero().flatten().tolist() == [1, 4, 7, 9]


def test_baselines_are_the_mean_of_train_and_the_mean_of_each_word(tmp_path: Path) -> None:
    preprocessor, rows = prepared(tmp_path, *ROWS)
    task = RegressSteps(dropout=0.0, dim=2, preprocessor=preprocessor)
    found = task.baselines(rows, rows, preprocessor, print)
    words, numbers = np.array(list("abaabba")), np.array([1, 3, -1, 0.5, 8, 4, 2])
    assert found["mean"]["mse"] == pytest.approx(numbers.var())
    means = {word: numbers[words == word].mean() for word in "ab"}
    errors = [means[word] - number for word, number in zip(words, numbers, strict=True)]
    assert found["word_mean"]["mse"] == pytest.approx(np.square(errors).mean())


def test_rows_that_do_not_fit_and_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    for rows, says in (
        (
            ("a b\t1 2", "a b\t1"),
            "has 1 labels for 2 words; give one label per word, separated by white space, or use task=regress",
        ),
        (("a b\t1 x",), "has the label x, which is not a finite number"),
        (("a b\t1 nan",), "has the label nan, which is not a finite number"),
        (("a b\t_ _",), "no row of train has a number"),
        (("a b\t2 2",), "every row of train has the number 2"),
    ):
        assert says in refusal(prepared, tmp_path, *rows), rows
    preprocessor, found = prepared(tmp_path, "a b c\t_ 1 2")
    task = RegressSteps(dropout=0.0, dim=2, preprocessor=preprocessor)
    says = "data: no word within data.max_length=3 has a number; label some, or raise data.max_length"
    assert refusal(task.examples, found, preprocessor, max_length=3, seed=0) == says


def test_a_running_sum_has_at_each_word_the_value_of_the_words_so_far() -> None:
    for row, whole in zip(RunningSums(size=200).rows("train"), SpelledSums(size=200).rows("train"), strict=True):
        assert (row["text"], row["label"].split()[-1]) == (whole["text"], whole["label"])
        value, sign, values = 0, 1, []
        for word in row["text"].split():
            if word in NUMBERS:
                value += sign * NUMBERS.index(word)
            sign = {"plus": 1, "minus": -1}.get(word, sign)
            values.append(str(value))
        assert row["label"].split() == values
