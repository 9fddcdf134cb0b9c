"""Sensitivity of models to word order: permute the words of a sentence and measure the change of the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqtrain.analysis import pictures
from seqtrain.analysis.demo import Bench, Demo, Findings

if TYPE_CHECKING:
    from seqtrain.analysis.order import Change

Row = dict[str, str | float]


@dataclass(frozen=True)
class Reader:
    """A model, its training options, and the prediction of theory about its sensitivity to order."""

    name: str
    overrides: tuple[str, ...]
    blind: bool = False
    steps: int = 300

    def asked(self, seed: int) -> tuple[str, ...]:
        """Return the overrides of its training."""
        steps = (f"trainer.max_steps={self.steps}", f"trainer.validate_every={self.steps}")
        return (*SHARED, *self.overrides, *steps, f"seed={seed}")

    @property
    def slug(self) -> str:
        """Name for runs and numbers."""
        return self.name.replace(",", "").replace(" ", "_")


BERT = ("model=bert", "model.num_heads=2", "optimizer.lr=0.003")
# By adamw both decoders are at chance after 800 steps, and by muon the one without positions learns last of all.
GPT = ("model=gpt", "model.num_layers=2", "model.num_heads=2", "optimizer=muon")
READERS = (
    Reader("cbow", ("model=cbow",), blind=True),
    Reader("bert, no positions", (*BERT, "model.positions=none"), blind=True),
    Reader("bert", BERT),
    Reader("gpt, no positions", (*GPT, "model.positions=none"), steps=1000),
    Reader("gpt", GPT, steps=1000),
    Reader("cnn", ("model=cnn",)),
    Reader("rnn", ("model=rnn", "optimizer.lr=0.003")),
    Reader("gru", ("model=gru",)),
    Reader("lstm", ("model=lstm",)),
)
SHARED = (
    "task=sentiment",
    "data=word_order",
    "model.dim=32",
    "model.dropout=0",
    "task.dropout=0",
    "callbacks=none",
)
CHANCE = 0.5  # two labels, as many of each
NUM_TEXTS = 40
NUM_ORDERS = 8  # of each text
FLOOR = 1e-17  # where an axis of powers of ten shows what did not change at all
LEARNED = 0.95  # accuracy from which a label that only order tells counts as read
TOLERANCE = 0.06  # of an accuracy around chance: 800 sentences know one to 0.018


def run(bench: Bench) -> Findings:
    """Train each model on sentences labelled by order alone; measure the effect of permutations before and after."""
    from seqtrain.analysis import order
    from seqtrain.analysis.untrained import untrained
    from seqtrain.inference.opened import open_run
    from seqtrain.training.data import make_source

    rows: list[Row] = []
    for reader in READERS:
        for seed in range(1, bench.seeds + 1):
            folder = bench.train(f"{reader.slug}-{seed}", *reader.asked(seed))
            # The last checkpoint: the best of the run is chosen by validation, and here nothing is to be chosen.
            opened = open_run(folder, "last")
            # Test, since validation has chosen when to stop.
            test = list(make_source(opened.config).rows("test"))
            accuracy = order.accuracy(opened, test)
            groups = order.permuted([row["text"] for row in test[:NUM_TEXTS]], NUM_ORDERS, seed)
            # Untrained too: what training has not learned to use may still be there.
            before = order.change(untrained(opened), groups)
            rows.append(_row(reader, seed, accuracy, before, order.change(opened, groups)))
    return _findings(bench, rows)


def _row(reader: Reader, seed: int, accuracy: float, before: Change, after: Change) -> Row:
    return {
        "model": reader.name,
        "seed": seed,
        "theory": "blind" if reader.blind else "sees order",
        "untrained_change": before.pooled,
        "untrained_last": before.last,
        "trained_change": after.pooled,
        "trained_last": after.last,
        "probability_change": after.probability,
        "measured": "blind" if before.blind and after.blind else "sees order",
        "accuracy": accuracy,
        "chance": CHANCE,
    }


def _findings(bench: Bench, rows: list[Row]) -> Findings:
    """Judge the claim from the table, and draw it."""
    _draw(bench, rows)
    numbers: dict[str, float] = {"chance": CHANCE}
    for reader in READERS:
        own = [row for row in rows if row["model"] == reader.name]
        # Over several seeds: the largest change, as within a seed, and the mean accuracy.
        for name in ("untrained_change", "trained_change", "trained_last", "probability_change"):
            numbers[f"{reader.slug}_{name}"] = max(float(row[name]) for row in own)
        numbers[f"{reader.slug}_accuracy"] = sum(float(row["accuracy"]) for row in own) / len(own)
    verdict, holds = judge(rows)
    return Findings(rows, verdict, holds, ("order.png",), numbers)


def judge(rows: list[Row]) -> tuple[str, bool | None]:
    """Return a verdict in words, and True if the rows agree with theory, False if they contradict it.

    None if no change contradicts theory, but a model that can see order has not learnt to use it. More training may
    help there.
    """
    blind = [row for row in rows if row["measured"] == "blind"]
    seeing = [row for row in rows if row["measured"] != "blind"]
    wrong = _names([row for row in rows if row["measured"] != row["theory"]])
    lucky = _names([row for row in blind if abs(float(row["accuracy"]) - CHANCE) > TOLERANCE])
    unlearned = _names([row for row in seeing if float(row["accuracy"]) < LEARNED])
    words = []
    if blind:
        words.append(
            f"a new order of the words does not change the output of {_names(blind)} (by at most {_most(blind):.1g} "
            f"of its length, which is rounding); the label that only order tells is guessed: accuracy "
            f"{_range(blind)}, chance {CHANCE}"
        )
    if seeing:
        words.append(
            f"a new order changes the output of {_names(seeing)} by {_least(seeing):.1g} of its length or more, "
            f"trained or not (trained_change, untrained_change): accuracy {_range(seeing)}"
        )
    if unlearned:
        words.append(f"order reaches {unlearned}, whose accuracy stayed below {LEARNED} in these steps")
    if wrong:
        words.append(f"against theory: {wrong}")
    if lucky:
        words.append(f"off chance although blind: {lucky}")
    # A contradiction to theory outweighs a task that was not learnt.
    holds = False if wrong or lucky else None if unlearned else True
    # Each is a sentence; the first goes on from whatever stands before it.
    sentences = words[:1]
    for word in words[1:]:
        sentences.append(word[0].upper() + word[1:])
    return ". ".join(sentences), holds


def _names(rows: list[Row]) -> str:
    # A comma stands between two models, so none within a name.
    names = [str(row["model"]).replace(", no ", " without ") for row in rows]
    return ", ".join(dict.fromkeys(names))


def _most(rows: list[Row]) -> float:
    return max(max(float(row["untrained_change"]), float(row["trained_change"])) for row in rows)


def _least(rows: list[Row]) -> float:
    return min(min(float(row["untrained_change"]), float(row["trained_change"])) for row in rows)


def _range(rows: list[Row]) -> str:
    values = [float(row["accuracy"]) for row in rows]
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _draw(bench: Bench, rows: list[Row]) -> None:
    """Draw changes on a logarithmic axis (left) and accuracies (right): a row for each model, a mark for each seed."""
    names = [reader.name for reader in READERS]
    figure = pictures.new_figure(10, 4)
    changes, accuracies = figure.subplots(1, 2, sharey=True)
    heights = [names.index(str(row["model"])) for row in rows]
    # By powers of ten, since rounding and reading are fourteen of them apart.
    for column, marker, label in (("untrained_change", "o", "untrained"), ("trained_change", "D", "trained")):
        values = [max(float(row[column]), FLOOR) for row in rows]
        color = pictures.COLORS[0 if column.startswith("un") else 1]
        changes.plot(values, heights, marker, color=color, label=label, alpha=0.7)
    changes.set_xscale("log")
    changes.set(
        xlim=(FLOOR / 3, 10),
        xlabel="largest change of the pooled vector, share of its length",
        title="Words in another order: what changes?",
        yticks=range(len(names)),
        yticklabels=names,
    )
    changes.axvspan(FLOOR / 3, 1e-13, color="0.9", label="rounding (exact 0 at the left edge)")
    changes.invert_yaxis()
    accuracies.plot([float(row["accuracy"]) for row in rows], heights, "D", color=pictures.COLORS[1], alpha=0.7)
    accuracies.axvline(CHANCE, linestyle="--", color=pictures.COLORS[1], label="a guess")
    accuracies.set(xlim=(0.4, 1.03), xlabel="accuracy on test", title="A label that only order tells")
    for axes in (changes, accuracies):
        axes.grid(alpha=0.3)
        # Legends are placed where there are no marks: blind models are at the upper left, the others at the right.
        axes.legend(loc="lower left" if axes is changes else "center", fontsize=8)
    pictures.save(figure, bench.out / "order.png")


DEMO = Demo(
    claim="A bag of words and an encoder without positions cannot see the order of words; every other model can.",
    seconds=75,
    run=run,
)
