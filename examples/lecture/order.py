"""Sensitivity of models to word order: permute the words of a sentence and measure the change of the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure

from seqtrain import Trained
from seqtrain.training.data import make_source
from shared import COLORS, Bench, Result, Row, main, new_figure, untrained

CLAIM = "A bag of words and an encoder without positions cannot see the order of words; every other model can."
BERT = ("model=bert", "model.num_heads=2", "optimizer.lr=0.003")
# By adamw both decoders are at chance after 800 steps, and by muon the one without positions learns last of all.
GPT = ("model=gpt", "model.num_layers=2", "model.num_heads=2", "optimizer=muon")
READERS = {
    "cbow": ("model=cbow",),
    "bert, no positions": (*BERT, "model.positions=none"),
    "bert": BERT,
    "gpt, no positions": (*GPT, "model.positions=none"),
    "gpt": GPT,
    "cnn": ("model=cnn",),
    "rnn": ("model=rnn", "optimizer.lr=0.003"),
    "gru": ("model=gru",),
    "lstm": ("model=lstm",),
}
BLIND = ("cbow", "bert, no positions")  # by theory
SHARED = ("task=sentiment", "data=word_order", "model.dim=32", "model.dropout=0", "task.dropout=0", "callbacks=none")
CHANCE = 0.5  # two labels, as many of each
NUM_TEXTS, NUM_ORDERS = 40, 8  # texts, and new orders of each
ROUNDING = 1e-9  # in float64 rounding gives 1e-15, order as the weakest reader sees it 1e-4 and more
FLOOR = 1e-17  # where an axis of powers of ten shows what did not change at all
LEARNED = 0.95  # accuracy from which a label that only order tells counts as read
TOLERANCE = 0.06  # of an accuracy around chance: 800 sentences know one to 0.018


def run(bench: Bench) -> Result:
    """Train each model on sentences labelled by order alone; measure the effect of permutations before and after."""
    rows: list[Row] = []
    for name, overrides in READERS.items():
        steps = 1000 if "model=gpt" in overrides else 300
        words = (*SHARED, *overrides, f"trainer.max_steps={steps}", f"trainer.validate_every={steps}")
        for seed in range(1, bench.seeds + 1):
            trained = bench.train(f"{name.replace(',', '').replace(' ', '_')}-{seed}", *words, f"seed={seed}")
            # Test, since validation has chosen when to stop.
            test = list(make_source(trained.opened.config).rows("test"))
            answers = trained.classify([row["text"] for row in test])
            right = sum(row["label"] == answer["label"] for row, answer in zip(test, answers, strict=True))
            groups = permuted([row["text"] for row in test[:NUM_TEXTS]], NUM_ORDERS, seed)
            # Untrained too: what training has not learned to use may still be there.
            before, after = change(untrained(trained), groups), change(trained, groups)
            row: Row = {"model": name, "seed": seed, "theory": "blind" if name in BLIND else "sees order"}
            row |= {"untrained_change": before, "trained_change": after}
            row |= {"measured": "blind" if max(before, after) < ROUNDING else "sees order"}
            rows.append(row | {"accuracy": right / len(test), "chance": CHANCE})
    return Result(rows, *judge(rows), draw(rows))


def permuted(texts: Sequence[str], copies: int, seed: int) -> list[list[str]]:
    """Return for each text a group: the text itself, then `copies` copies with the words in random order."""
    generator = torch.Generator().manual_seed(seed)
    groups = []
    for words in map(str.split, texts):
        orders = [torch.randperm(len(words), generator=generator).tolist() for _ in range(copies)]
        groups.append([" ".join(words[place] for place in order) for order in (range(len(words)), *orders)])
    return groups


@torch.no_grad()
def change(run: Trained, groups: Sequence[Sequence[str]]) -> float:
    """Return the largest change of the vector that the label is read from, as a share of its length.

    Args:
        run: It is converted to float64: in float32 a sum in another order differs by as much as a poor reader does.
        groups: Texts of the same words; the first of each group is compared with the others.
    """
    model, task = run.model.double(), run.task.double()
    reader: Any = task  # a Sentiment, by SHARED
    before, after = reader.edges(run.tokenizer)
    largest = 0.0
    for group in groups:
        tokens = torch.tensor([[*before, *run.tokenizer.encode(text).tolist(), *after] for text in group])
        vectors = reader.pooled(model, tokens, torch.full((len(tokens),), tokens.shape[1]))
        moved = (vectors[1:] - vectors[:1]).norm(dim=1) / vectors[0].norm()
        largest = max(largest, moved.max().item())
    return largest


def judge(rows: list[Row]) -> tuple[str, bool | None]:
    """Return a verdict in words, and True if the rows agree with theory, False if they contradict it.

    None if no change contradicts theory, but a model that can see order has not learnt to use it. More training may
    help there.
    """
    blind = [row for row in rows if row["measured"] == "blind"]
    seeing = [row for row in rows if row["measured"] != "blind"]
    wrong = [row for row in rows if row["measured"] != row["theory"]]
    lucky = [row for row in blind if abs(float(row["accuracy"]) - CHANCE) > TOLERANCE]
    unlearned = [row for row in seeing if float(row["accuracy"]) < LEARNED]
    words = []
    if blind:
        words.append(
            f"A new order of the words does not change the output of {names(blind)} (by at most "
            f"{max(changes(blind)):.1g} of its length, which is rounding); the label that only order tells is guessed: "
            f"accuracy {accuracies(blind)}, chance {CHANCE}"
        )
    if seeing:
        words.append(
            f"A new order changes the output of {names(seeing)} by {min(changes(seeing)):.1g} of its length or more, "
            f"trained or not (trained_change, untrained_change): accuracy {accuracies(seeing)}"
        )
    if unlearned:
        words.append(f"Order reaches {names(unlearned)}, whose accuracy stayed below {LEARNED} in these steps")
    if wrong:
        words.append(f"Against theory: {names(wrong)}")
    if lucky:
        words.append(f"Off chance although blind: {names(lucky)}")
    # A contradiction to theory outweighs a task that was not learnt.
    return ". ".join(words), False if wrong or lucky else None if unlearned else True


def names(rows: list[Row]) -> str:
    """List the models of rows; a comma stands between two models, so none within a name."""
    return ", ".join(dict.fromkeys(str(row["model"]).replace(", no ", " without ") for row in rows))


def changes(rows: list[Row]) -> list[float]:
    """Return the changes of rows, untrained and trained."""
    return [float(row[name]) for row in rows for name in ("untrained_change", "trained_change")]


def accuracies(rows: list[Row]) -> str:
    """Format the range of the accuracies."""
    values = sorted({f"{float(row['accuracy']):.2f}" for row in rows})
    return " to ".join(dict.fromkeys((values[0], values[-1])))


def draw(rows: list[Row]) -> Figure:
    """Draw changes on a logarithmic axis (left) and accuracies (right): a row for each model, a mark for each seed."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2, sharey=True)
    heights = [list(READERS).index(str(row["model"])) for row in rows]
    # By powers of ten, since rounding and reading are fourteen of them apart.
    for color, name, marker in zip(COLORS, ("untrained", "trained"), "oD", strict=False):
        values = [max(float(row[f"{name}_change"]), FLOOR) for row in rows]
        left.semilogx(values, heights, marker, color=color, label=name, alpha=0.7)
    left.set(xlabel="largest change of the pooled vector, share of its length", xlim=(FLOOR / 3, 10))
    left.set(title="Words in another order: what changes?", yticks=range(len(READERS)), yticklabels=READERS)
    left.axvspan(FLOOR / 3, 1e-13, color="0.9", label="rounding (exact 0 at the left edge)")
    left.invert_yaxis()
    right.plot([row["accuracy"] for row in rows], heights, "D", color=COLORS[1], alpha=0.7)
    right.axvline(CHANCE, linestyle="--", color=COLORS[1], label="a guess")
    right.set(xlim=(0.4, 1.03), xlabel="accuracy on test", title="A label that only order tells")
    left.legend(loc="lower left", fontsize=8)  # where there are no marks: blind models are at the upper left
    right.legend(loc="center", fontsize=8)
    return figure


if __name__ == "__main__":
    main("order", CLAIM, run)
