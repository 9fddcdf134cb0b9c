"""Laws of translation: what its batches, its loss and its translations are, by arithmetic done here."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch

from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows, prepare_rows
from seqtrain.data.tokenizers.recipes import Word
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.base import Facts, Reduced
from seqtrain.tasks.baselines.texts import closest
from seqtrain.tasks.translation import EXTRA_TOKENS, Translation, TranslationBatch
from seqtrain.training.model_and_task import make_model
from tests.support.examples import SAMPLES
from tests.support.model_cases import Case
from tests.tasks.test_baselines_of_a_run import Given

PAIRS = [
    ("ein Hund", "a dog ."),
    ("zwei Hunde spielen im Park", "two dogs play in the park ."),
    ("", "nothing"),
    ("ein Mann schläft", "a man  sleeps ."),
    ("eine Frau liest ein Buch im Park", "a woman reads a book in the park ."),
    ("der Hund schläft im Haus", "the dog sleeps in the house ."),
]
MODELS = [
    Case("gru", ()),
    Case("gpt", ()),
    Case("encoder_decoder", ()),
    Case("rnn_encoder_decoder", ()),
]
FACTS = Facts(bytes_per_token=1.0, words_per_token=None)


SOURCE = Given(("source", "target"), train=PAIRS)  # type: ignore[arg-type]


@cache
def data(shared: bool = True) -> tuple[Preprocessor, Rows]:
    with TemporaryDirectory() as folder:
        preprocessor, rows = prepare_rows(
            SOURCE, Word(), ["train"], SOURCE.fields, shared=shared, cache=Path(folder), say=lambda line: None
        )
    return preprocessor, rows["train"]


def pair(case: Case, *, shared: bool = True, **options: Any) -> tuple[SequenceModel, Translation]:
    """Model and task in evaluation mode, in float64, with weights large enough that a wrong read shows."""
    preprocessor, _ = data(shared)
    size = preprocessor.target_tokenizer.vocab_size
    model = make_model(case.config(), preprocessor.tokenizer.vocab_size, target_vocab_size=None if shared else size)
    defaults: dict[str, Any] = {
        "tied": True,
        "label_smoothing": 0.1,
        "beam": 1,
        "length_penalty": 1.0,
        "max_ratio": 2.0,
    }
    task = Translation(
        shared_vocab=shared,
        dim=model.dim,
        target_vocab_size=size,
        preprocessor=preprocessor,
        **defaults | options,
    )
    for module in (model, task):
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return model.double().eval(), task.double().eval()


def batch_of(
    task: Translation, index: list[int] | None = None, *, shared: bool = True, max_length: int = 64
) -> TranslationBatch:
    preprocessor, rows = data(shared)
    examples = task.examples(rows, preprocessor, max_length=max_length, seed=0)
    chosen = np.array(range(len(PAIRS)) if index is None else index)
    return examples.collate(chosen, 0, examples.totals(chosen, 0))


def ids(text: str, side: str, shared: bool = True) -> list[int]:
    return data(shared)[0].of(side).encode(text).tolist()


@torch.no_grad()
def probs(model: SequenceModel, task: Translation, source: str, target: str, shared: bool = True) -> torch.Tensor:
    """log p (T, V+1) of each place of a target, whose source is read without any padding."""
    preprocessor, _ = data(shared)
    state = model.begin(torch.tensor([[*ids(source, "source", shared), preprocessor.tokenizer.separator]]))
    start = preprocessor.target_tokenizer.start
    hidden, _ = model(torch.tensor([[start, *ids(target, "target", shared)]]), state)
    return task.logits(model, hidden[0]).log_softmax(-1)


def never_ends(task: Translation) -> None:
    """Makes the end the least likely of all."""
    assert task.head is not None
    task.head.bias.data[-1] = -1e3


def totals_of(task: Translation, model: SequenceModel, *batches: TranslationBatch) -> Reduced:
    """What the learner sums up, read as it does."""
    with torch.no_grad():
        found = [task.evaluate(model, batch, None)[0] for batch in batches]
    return {
        name: (sum(parts[name][0] for parts in found).tolist(), sum(parts[name][1] for parts in found))  # type: ignore[union-attr]
        for name in found[0]
    }


@pytest.mark.parametrize("shared", [True, False])
def test_a_batch_holds_ended_sources_begun_targets_and_ended_targets(shared: bool) -> None:
    preprocessor, _ = data(shared)
    assert preprocessor.shared == shared
    batch = batch_of(pair(MODELS[2], shared=shared)[1], shared=shared)
    separator, end = preprocessor.tokenizer.separator, preprocessor.target_tokenizer.start
    for lane, (source, target) in enumerate(PAIRS):
        one, other = ids(source, "source", shared), ids(target, "target", shared)
        assert batch.lengths[lane] == len(one) + 1
        assert batch.tokens[lane, : len(one) + 1].tolist() == [*one, separator]
        assert batch.target_tokens[lane, : len(other) + 1].tolist() == [end, *other]
        assert batch.targets[lane, : len(other) + 1].tolist() == [*other, end]
        assert (batch.targets[lane, len(other) + 1 :] == IGNORED).all()
    num_targets = sum(len(ids(target, "target", shared)) + 1 for _, target in PAIRS)
    assert batch.num_targets == int((batch.targets != IGNORED).sum()) == num_targets
    assert batch.totals == {"loss": num_targets}
    assert batch.count == num_targets + int(batch.lengths.sum())
    assert batch.references() == [target for _, target in PAIRS]
    assert not batch.unpadded
    assert batch_of(pair(MODELS[2])[1], [3, 3]).unpadded


def test_examples_are_cut_to_half_of_the_length_on_each_side_and_counted() -> None:
    preprocessor, rows = data()
    _, task = pair(MODELS[0])
    for max_length in (4, 9, 10, 11, 14, 64):
        examples = task.examples(rows, preprocessor, max_length=max_length, seed=0)
        batch = batch_of(task, max_length=max_length)
        longest = max_length // 2 - 1
        assert batch.tokens.shape[1] <= max_length // 2
        assert batch.targets.shape[1] <= max_length // 2
        assert (batch.tokens[torch.arange(len(PAIRS)), batch.lengths - 1] == preprocessor.tokenizer.separator).all()
        assert np.asarray(examples.lengths).sum() == batch.count
        assert examples.cut == sum(max(len(s.split()), len(t.split())) > longest for s, t in PAIRS)
        assert batch.references()[4] == PAIRS[4][1]


def test_the_loss_is_the_summed_surprisal_however_sides_are_padded() -> None:
    given = [*((case, True, tied) for case in MODELS for tied in (True, False)), (MODELS[2], False, True)]
    for case, shared, tied in [*given, (MODELS[3], False, False)]:
        model, task = pair(case, shared=shared, tied=tied)
        end = data(shared)[0].target_tokenizer.start
        surprisal, spread, right = 0.0, 0.0, 0
        for source, target in PAIRS:
            found = probs(model, task, source, target, shared)
            assert found.shape[1] == end + 1
            for log_p, token in zip(found, [*ids(target, "target", shared), end], strict=True):
                surprisal -= float(log_p[token])
                spread -= float(log_p.mean())
                right += int(log_p.argmax()) == token
        batch = batch_of(task, shared=shared)
        totals = totals_of(task, model, batch)
        assert totals["loss"][0] == pytest.approx(surprisal, rel=1e-12), (case, shared, tied)
        assert totals["accuracy"] == (right, batch.num_targets), (case, shared, tied)
        parts, _ = task.train().evaluate(model, batch, None)
        assert set(parts) == {"loss"}
        assert parts["loss"][0].item() == pytest.approx(0.9 * surprisal + 0.1 * spread, rel=1e-12), (case, shared, tied)
        assert parts["loss"][1] == batch.num_targets


@pytest.mark.parametrize(("case", "beam"), [(MODELS[1], 2), (MODELS[3], 1)], ids=str)
def test_the_scores_are_those_of_the_translations_against_the_written_text(case: Case, beam: int) -> None:
    model, task = pair(case, beam=beam)
    preprocessor, _ = data()
    texts = task.translate(model, [source for source, _ in PAIRS], preprocessor)
    assert len(set(texts)) > 1
    references = [target for _, target in PAIRS]
    whole = task.measure(totals_of(task, model, batch_of(task)), FACTS)
    assert whole["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, [references]).score, abs=1e-9)
    assert whole["chrf"] == pytest.approx(sacrebleu.corpus_chrf(texts, [references]).score, abs=1e-9)
    assert whole["chrf"] > 0
    parts = task.measure(totals_of(task, model, *(batch_of(task, [i]) for i in range(len(PAIRS)))), FACTS)
    assert parts == pytest.approx(whole, rel=1e-9)
    assert whole["perplexity"] == pytest.approx(math.exp(whole["loss"]))
    shown = [sample.text for sample in task.samples(model, batch_of(task), preprocessor, SAMPLES)]
    for text, (source, reference), found in zip(texts, PAIRS, shown, strict=True):
        lines = (source, " ".join(reference.split()), " ".join(text.split()))
        assert found == "source: {}\nreference: {}\nmodel: {}".format(*lines)


@pytest.mark.parametrize("case", MODELS[1:3], ids=str)
def test_a_translation_does_not_depend_on_the_others_and_a_beam_that_is_asked_for_is_used(case: Case) -> None:
    model, task = pair(case, max_ratio=0.1)
    preprocessor, _ = data()
    sources = [source for source, _ in PAIRS] * 12  # more than are translated at a time
    texts = task.translate(model, sources, preprocessor)
    assert texts == [task.translate(model, [source], preprocessor)[0] for source in sources[: len(PAIRS)]] * 12
    wide = task.translate(model, sources, preprocessor, beam=4, length_penalty=0.0)
    _, other = pair(case, max_ratio=0.1, beam=4, length_penalty=0.0)
    assert wide == other.translate(model, sources, preprocessor)
    assert wide != texts


def test_a_translation_that_never_ends_is_cut_at_its_share_of_the_source() -> None:
    for case in MODELS:
        model, task = pair(case, tied=False, max_ratio=1.5)
        never_ends(task)
        for (source, _), text in zip(PAIRS, task.translate(model, [s for s, _ in PAIRS], data()[0]), strict=True):
            assert len(text.split()) == int(1.5 * (len(source.split()) + 1)) + EXTRA_TOKENS, case


def test_a_table_of_positions_is_never_overrun() -> None:
    for name, words in (("gpt", [10, 6]), ("encoder_decoder", [12, 12])):
        model, task = pair(Case(name, (("positions", "learned"), ("max_length", 12))), tied=False, max_ratio=5.0)
        never_ends(task)
        assert [len(text.split()) for text in task.translate(model, ["ein", "ein " * 30], data()[0])] == words, name


def test_a_tied_head_is_the_embedding_of_the_target_and_the_end_is_its_start() -> None:
    model, task = pair(MODELS[2], shared=False)
    assert list(task.parameters()) == []
    hidden = torch.randn(3, model.dim).double()
    table = model.target_embed.weight  # type: ignore[union-attr]
    vocab_size = data(False)[0].target_tokenizer.vocab_size
    torch.testing.assert_close(task.logits(model, hidden), hidden @ table[: vocab_size + 1].T)  # type: ignore[index]
    assert task.head_flops() == 2 * model.dim * (vocab_size + 1)
    shared, _ = pair(MODELS[2])
    assert shared.target_embed is shared.embed


def test_a_silent_batch_has_no_loss_no_gradient_and_no_translation() -> None:
    model, task = pair(MODELS[3])
    without_targets, real = batch_of(task, [1]).without_targets(), batch_of(task, [0, 1])
    assert totals_of(task, model, real, without_targets) == totals_of(task, model, real)
    parts, _ = task.train().evaluate(model, without_targets, None)
    parts["loss"][0].backward()
    assert parts["loss"][0] == 0
    assert not any(weight.grad.any() for weight in model.parameters() if weight.grad is not None)


def test_baselines_are_the_source_itself_and_the_nearest_source_s_translation() -> None:
    _, task = pair(MODELS[0])
    preprocessor, rows = data()
    found = task.baselines(rows, rows, preprocessor, print)
    sources, targets = zip(*PAIRS, strict=True)
    alike = [*targets[:2], targets[0], *targets[3:]]  # a source without words is like none, and takes the first
    assert found["nearest"]["bleu"] == pytest.approx(sacrebleu.corpus_bleu(alike, [list(targets)]).score)
    assert found["nearest"]["exact_match"] == pytest.approx(5 / 6)
    assert set(found) == {"copy", "nearest"}
    assert found["copy"]["chrf"] == pytest.approx(sacrebleu.corpus_chrf(list(sources), [list(targets)]).score)
    assert found["copy"]["exact_match"] == 0


def test_the_nearest_text_is_that_of_the_largest_cosine() -> None:
    draw = np.random.default_rng(0)
    letters = np.array(list("abcdefghijkl"))
    known = [" ".join(draw.choice(letters, draw.integers(0, 6))) for _ in range(60)]
    asked = [" ".join(draw.choice(letters, draw.integers(1, 6))).upper() + " z!" for _ in range(40)]
    seen = Counter(word for text in known for word in set(text.split()))
    weight = {word: math.log(1 + len(known) / count) for word, count in seen.items()}

    def cosine(one: str, other: str) -> float:
        mine, theirs = set(one.lower().split()), set(other.split())
        product = sum(weight[word] ** 2 for word in mine & theirs)
        return product / max(math.sqrt(sum(weight[word] ** 2 for word in theirs)), 1e-9)

    for text, place in zip(asked, closest(known, asked), strict=True):
        assert cosine(text, known[place]) == pytest.approx(max(cosine(text, other) for other in known))
    assert closest(["a b", "c", "b a"], ["b, A!", "C", "x"]) == [0, 1, 0]
