"""Laws of the sentiment task: what it pools, what its loss and metrics are, by arithmetic done here."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.recipes import Char
from seqtrain.errors import NonFinite
from seqtrain.models.base import SequenceModel
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Facts
from seqtrain.tasks.sentiment import LabelledExamples, Pool, Sentiment, pool
from seqtrain.training.callbacks.confusion import MAX_LABELS, plot_confusion
from tests.conftest import Seqtrain
from tests.support.examples import SAMPLES, files, options
from tests.support.model_cases import Case, assert_near, some_tokens

POOLS: tuple[Pool, ...] = ("last", "mean", "max", "cls")
FACTS = Facts(bytes_per_token=1.0, words_per_token=None)
LABELS = ("bad", "good", "so so")
COUNTS = (6, 3, 1)
LENGTHS = [5, 1, 7, 3]


def make(*, labels: tuple[str, ...] = LABELS, counts: tuple[int, ...] = COUNTS, **options) -> Sentiment:
    torch.manual_seed(0)
    given = {"pool": "last", "dropout": 0.0, "class_weights": "none"} | options
    return Sentiment(**given, dim=8, bptt_length=100, labels=labels, label_counts=counts).double()


def batch(tokens: Tensor, lengths: list[int], targets: list[int]) -> ExampleBatch:
    return ExampleBatch(
        tokens=tokens,
        lengths=torch.tensor(lengths),
        targets=torch.tensor(targets),
        index=torch.arange(len(lengths)),
        count=sum(lengths),
        totals={"loss": len(lengths)},
    )


# -- pooling -----------------------------------------------------------------------------------------------------


def naive(hidden: Tensor, lengths: list[int], how: Pool) -> Tensor:
    """One lane and one number at a time."""
    out = torch.zeros(len(hidden), hidden.shape[-1]).double()
    for lane, length in enumerate(lengths):
        for width in range(hidden.shape[-1]):
            column = [hidden[lane, time, width].item() for time in range(length)]
            found = {"last": column[-1], "cls": column[0], "mean": sum(column) / length, "max": max(column)}
            out[lane, width] = found[how]
    return out


def test_pooling_is_that_of_a_loop_over_real_positions() -> None:
    hidden = torch.randn(4, 9, 3, generator=torch.Generator().manual_seed(0)).double() - 5  # all below zero
    for how in POOLS:
        spoilt = hidden.clone()
        for lane, length in enumerate(LENGTHS):
            spoilt[lane, length:] = torch.nan if how != "last" else 1e9
        for given in (hidden, spoilt):
            assert_near(pool(given, torch.tensor(LENGTHS), how), naive(hidden, LENGTHS, how), 1e-12)


def answered(task: Sentiment, model: SequenceModel, tokens: Tensor, lengths: Tensor) -> Tensor:
    """The logits of the labels of some sequences."""
    return task.logits(model, task.pooled(model, tokens, lengths))


def test_padding_changes_no_score() -> None:
    tokens = some_tokens(4, 7, specials=3)
    for name, how in product(("gru", "bert"), POOLS):
        model, task = Case(name, ()).make(), make(pool=how).eval()
        if task.incompatibility(model) is not None:
            assert (how, name) == ("cls", "gru")
            continue
        alone = torch.cat(
            [answered(task, model, row[None, :n], torch.tensor([n])) for row, n in zip(tokens, LENGTHS, strict=True)]
        )
        for wider in (0, 4):
            whole = torch.cat([tokens, some_tokens(4, wider, seed=1)], 1) if wider else tokens
            assert_near(answered(task, model, whole, torch.tensor(LENGTHS)), alone)


# -- loss and metrics --------------------------------------------------------------------------------------------


def probs(task: Sentiment, found: ExampleBatch) -> Tensor:
    return answered(task, Case("gru", ()).make(), found.tokens, found.lengths).softmax(-1).detach()


def test_the_loss_is_the_weighted_surprisal_in_training_and_the_plain_one_outside() -> None:
    model, targets = Case("gru", ()).make(), [0, 2, 1, 1]
    found = batch(some_tokens(4, 7), LENGTHS, targets)
    by_label: list[tuple[Any, list[float]]] = [
        ("none", [1, 1, 1]),
        ("balanced", [10 / 18, 10 / 9, 10 / 3]),  # of as much weight altogether, and of mean 1
        ([1, 2, 0.5], [weight * 10 / (6 * 1 + 3 * 2 + 0.5) for weight in (1, 2, 0.5)]),
    ]
    for weights, raw in by_label:
        task = make(class_weights=weights)
        surprisals = [-math.log(prob[target]) for prob, target in zip(probs(task, found), targets, strict=True)]
        weighted = sum(raw[target] * surprisal for target, surprisal in zip(targets, surprisals, strict=True))
        parts, _ = task.train().evaluate(model, found, None)
        assert parts.keys() == {"loss"}
        expected = pytest.approx(weighted, rel=1e-6)  # weights are held in float32
        assert (parts["loss"][0].item(), parts["loss"][1]) == (expected, 4), weights
        parts, _ = task.eval().evaluate(model, found, None)
        assert (parts["loss"][0].item(), parts["loss"][1]) == (pytest.approx(sum(surprisals), rel=1e-12), 4), weights


def test_what_has_no_target_counts_nowhere() -> None:
    model, task = Case("gru", ()).make(), make()
    whole = batch(some_tokens(4, 7), LENGTHS, [0, IGNORED, 1, IGNORED])
    part = batch(whole.tokens[::2], LENGTHS[::2], [0, 1])
    for mode in (True, False):
        found, expected = (task.train(mode).evaluate(model, each, None)[0] for each in (whole, part))
        assert_near(found, expected)


def by_hand(pairs: list[tuple[int, int]], labels: int) -> tuple[float, float]:
    """Accuracy and macro F1 of (true, predicted), over the labels that are either."""
    scores = []
    for label in range(labels):
        right = sum(true == found == label for true, found in pairs)
        truly = sum(true == label for true, _ in pairs)
        said = sum(found == label for _, found in pairs)
        if truly + said:
            precision, recall = right / said if said else 0.0, right / truly if truly else 0.0
            scores.append(2 * precision * recall / (precision + recall) if right else 0.0)
    return sum(true == found for true, found in pairs) / len(pairs), sum(scores) / len(scores)


def test_accuracy_and_macro_f1_are_those_of_all_predictions() -> None:
    model, task = Case("gru", ()).make(), make().eval()
    for seed in range(5):
        rng, pairs, sums = np.random.default_rng(seed), [], {}
        for _ in range(3):
            found = batch(some_tokens(4, 7, seed=int(rng.integers(999))), LENGTHS, rng.integers(0, 2, 4).tolist())
            for name, (total, count) in task.evaluate(model, found, None)[0].items():
                before = sums.get(name, (0, 0))
                sums[name] = before[0] + total, before[1] + count
            pairs += list(zip(found.targets.tolist(), probs(task, found).argmax(-1).tolist(), strict=True))
        metrics = task.measure({name: (total.tolist(), count) for name, (total, count) in sums.items()}, FACTS)
        assert (metrics["accuracy"], metrics["macro_f1"]) == pytest.approx(by_hand(pairs, 3), rel=1e-12), seed
        assert metrics["loss"] == pytest.approx(sums["loss"][0].item() / 12)
    for wrongly in (0, 2):  # the third label occurs nowhere, or is predicted alone
        table = [[3, 1, wrongly], [2, 4, 0], [0, 0, 0]]
        pairs = [(true, found) for true in range(3) for found in range(3) for _ in range(table[true][found])]
        metrics = task.measure({"loss": (5.0, 10.0), "confusion": (table, 10.0)}, FACTS)
        assert (metrics["accuracy"], metrics["macro_f1"]) == pytest.approx(by_hand(pairs, 3), rel=1e-12)


# -- examples ----------------------------------------------------------------------------------------------------

TEXTS, TARGETS = ["fine", "", "much too long for this", "dull"], np.array([1, 2, 0, 0])


def rows() -> tuple[Rows, Preprocessor]:
    tokenizer = Char().train(TEXTS)
    ids = [tokenizer.encode(text) for text in TEXTS]
    documents = np.concatenate([[0], np.cumsum([len(each) for each in ids])])
    column = Corpus(np.concatenate(ids).astype(np.uint16), documents, 1, 1, 0, "")
    return Rows({"text": column}, TARGETS, lambda: iter([])), Preprocessor(tokenizer, tokenizer, LABELS)


def test_an_example_is_its_text_between_start_and_separator_cut_at_the_end() -> None:
    given, made = rows()
    examples = LabelledExamples(given, made, max_length=10)
    found = examples.collate(np.arange(4), 0, {"loss": 4})
    tokenizer = made.tokenizer
    for lane, text in enumerate(TEXTS):
        ids = found.tokens[lane, : found.lengths[lane]].tolist()
        assert ids == [tokenizer.start, *tokenizer.encode(text[:8]).tolist(), tokenizer.separator]
        assert not found.tokens[lane, found.lengths[lane] :].any()
    assert found.lengths.tolist() == examples.lengths[:, 0].tolist() == [6, 2, 10, 6]
    assert (found.targets.tolist(), found.count, examples.cut) == (TARGETS.tolist(), 24, 1)


def test_what_is_shown_names_the_label_its_chance_and_the_truth() -> None:
    given, made = rows()
    model = Case("gru", ()).make()
    model.embed = torch.nn.Embedding(made.tokenizer.vocab_size + 3, 8).double()
    task = make().eval()
    found = LabelledExamples(given, made, max_length=40).collate(np.arange(4), 0, {"loss": 4})
    for sample, text, target, prob in zip(
        task.samples(model, found, made, SAMPLES),
        TEXTS,
        TARGETS,
        answered(task, model, found.tokens, found.lengths).softmax(-1),
        strict=True,
    ):
        best = int(prob.argmax())
        verdict = "right" if best == target else f"wrong: it is {LABELS[target]}"
        assert sample.text == f"{LABELS[best]} {prob[best].item():.0%} ({verdict}): {text}"
    with torch.no_grad():
        task.head.weight[0, 0] = math.nan
    with pytest.raises(NonFinite, match="the scores of the labels are not finite"):
        task.samples(model, found, made, SAMPLES)


# -- the picture -------------------------------------------------------------------------------------------------


def test_the_confusion_matrix_is_drawn_where_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "confusion.png"
    assert plot_confusion(
        np.array([[3, 1, 0], [0, 0, 0], [2, 0, 9]]), ("bad", "a label far too long to be read", "_$"), path
    )
    assert path.read_bytes().startswith(b"\x89PNG")
    many = tuple(map(str, range(MAX_LABELS + 1)))
    assert not plot_confusion(np.eye(MAX_LABELS + 1, dtype=int), many, tmp_path / "many.png")
    assert not (tmp_path / "many.png").exists()


@pytest.mark.long
def test_a_run_is_judged_by_accuracy_and_draws_its_confusion(seqtrain: Seqtrain, tmp_path: Path) -> None:
    files(tmp_path)
    given = (*options("sentiment"), "callbacks=default", "trainer.max_steps=4", "trainer.validate_every=2")
    answer = seqtrain("train", *given, "run_dir=run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    run = Run(tmp_path / "run")
    assert (run.plots / "confusion.png").read_bytes().startswith(b"\x89PNG")
    recorded = [record["validation/accuracy"] for record in run.metrics() if "validation/accuracy" in record]
    assert len(recorded) == 2
    assert run.summary.best["validation"]["accuracy"] == max(recorded)
    assert run.summary.baselines["validation"].keys() == {"majority", "naive_bayes", "linear"}
    shown = (run.samples / "step-00000004.txt").read_text("utf-8").splitlines()
    assert len(shown) == 8
    assert all(line.startswith(("yes ", "no ")) for line in shown)
