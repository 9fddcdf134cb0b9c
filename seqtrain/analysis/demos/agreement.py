"""A pronoun and its noun: find the attention head that links them, by a score over all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqtrain.analysis import pictures
from seqtrain.analysis.demo import Bench, Demo, Findings
from seqtrain.data.sources import agreement as source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from seqtrain.analysis.heads import Scores, Sentence

Row = dict[str, str | float]

OVERRIDES = (
    "task=masked_lm",
    "data=agreement",
    "tokenizer=word",
    "model=bert",
    "model.dim=64",
    "model.num_layers=2",
    "model.num_heads=4",
    "task.pseudo_examples=0",
    # Random words in place of hidden ones would be false nouns: with a tenth of them nothing is learnt in these steps.
    "task.random_share=0",
    "task.mask_prob=0.2",
    "optimizer=muon",
    "trainer.max_steps=3000",
    "trainer.validate_every=3000",
    "callbacks=none",
)
IN_SET = len(source.PRONOUNS)  # sentences that follow one another and differ in their nouns' places alone
CHANCE = 1 / IN_SET  # of one of four nouns, and of one of four pronouns
LEARNED = 0.9  # accuracy of the pronoun from which there is a skill whose head can be looked for
NUM_ERRORS = 4  # standard errors above chance from which a head is no luck of the sentences


def run(bench: Bench) -> Findings:
    """Train a masked language model, and score each head by the attention from the hidden pronoun."""
    from seqtrain.analysis import heads
    from seqtrain.analysis.untrained import untrained
    from seqtrain.inference.opened import open_run
    from seqtrain.training.data import make_source

    rows: list[Row] = []
    for seed in range(1, bench.seeds + 1):
        opened = open_run(bench.train(f"bert-{seed}", *OVERRIDES, f"seed={seed}"), "last")
        sentences = []
        for row in make_source(opened.config).rows("test"):
            parts = {"asked": source.ASKED, "noun": source.RIGHT, "other": source.OTHER}
            one = heads.sentence(row["text"], row["label"], **parts)
            if len(one.others) == IN_SET - 1:  # with fewer nouns, chance is another
                sentences.append(one)
        _, measured = heads.halves(len(sentences), IN_SET)
        scores = {}
        for name, model in (("untrained", untrained(opened)), ("trained", opened)):
            scores[name] = heads.score(model, sentences)
            chosen = heads.best(scores[name], IN_SET)
            rows.append(
                {
                    "model": name,
                    "seed": seed,
                    "layer": chosen.layer + 1,
                    "head": chosen.head + 1,
                    "margin": chosen.margin,
                    "finds_noun": chosen.found,
                    "finds_noun_error": chosen.error,
                    "fills_pronoun": heads.filled_right(model, sentences[measured]),
                    "chance": CHANCE,
                }
            )
        # One picture: heads have other numbers in each seed.
        if seed == 1:
            chosen = heads.best(scores["trained"], IN_SET)
            margins = scores["trained"].margin[chosen.layer, chosen.head, measured]
            shown = _typical(sentences[measured], margins)
            weights = heads.attention_map(opened, shown, chosen.layer, chosen.head)
            _draw(bench, scores, shown, weights, f"layer {chosen.layer + 1}, head {chosen.head + 1}")
    verdict, holds = judge(rows)
    return Findings(rows, verdict, holds, ("agreement.png",), _numbers(rows))


def _typical(sentences: list[Sentence], margins: np.ndarray) -> Sentence:
    """Return the sentence of the median margin, neither the head's best nor its worst."""
    order = np.argsort(margins, kind="stable")
    return sentences[int(order[len(order) // 2])]


def _numbers(rows: list[Row]) -> dict[str, float]:
    """Return means over seeds, by the names of the model and the measurement."""
    numbers: dict[str, float] = {"chance": CHANCE}
    for model in ("untrained", "trained"):
        own = [row for row in rows if row["model"] == model]
        for name in ("margin", "finds_noun", "finds_noun_error", "fills_pronoun"):
            numbers[f"{model}_{name}"] = float(np.mean([float(row[name]) for row in own]))
    return numbers


def judge(rows: list[Row]) -> tuple[str, bool | None]:
    """Return a verdict in words, and True if a head was found; None if the model has not learnt the pronoun.

    In every seed the head must find the noun in more sentences than chance and than the best head of the untrained
    model, by four standard errors.
    """
    trained = [row for row in rows if row["model"] == "trained"]
    blank = [row for row in rows if row["model"] == "untrained"]
    # Seed by seed: a mean could hide one in which there is no such head.
    found = True
    for row, before in zip(trained, blank, strict=True):
        least = max(CHANCE, float(before["finds_noun"])) + NUM_ERRORS * float(row["finds_noun_error"])
        found = found and float(row["finds_noun"]) > least
    learned = min(float(row["fills_pronoun"]) for row in trained)
    words = (
        f"The pronoun is filled in right in {_shares(trained, 'fills_pronoun')} of sentences (untrained "
        f"{_shares(blank, 'fills_pronoun')}, chance {CHANCE:.0%}). The best head, chosen on other sentences, looks "
        f"from the hidden pronoun at its noun, or the article before it, more than at any of the three others in "
        f"{_shares(trained, 'finds_noun')} of sentences (untrained {_shares(blank, 'finds_noun')}, chance {CHANCE:.0%})"
    )
    if learned < LEARNED:
        return f"{words}; below {LEARNED:.0%} the model has not learnt what a head could be found for", None
    if not found:
        words += "; no head is told from chance and the untrained model, so the way to the noun is not one head's"
    return words, found


def _shares(rows: list[Row], name: str) -> str:
    """Format a share as percent; for several seeds, the smallest and the largest."""
    values = [float(row[name]) for row in rows]
    if max(values) - min(values) < 0.005:
        return f"{values[0]:.0%}"
    return f"{min(values):.0%} to {max(values):.0%}"


# -- picture -----------------------------------------------------------------------------------------------------


def _draw(bench: Bench, scores: dict[str, Scores], shown: Sentence, weights: np.ndarray, head: str) -> None:
    """Draw the score of each head, untrained and trained (left), and the best head's map of one sentence (right)."""
    figure = pictures.new_figure(11, 5.4)
    parts = figure.subfigures(1, 2, squeeze=False, width_ratios=(4, 5))
    tables, single = parts[0, 0], parts[0, 1]
    upper, lower = tables.subplots(2, 1)
    for axes, name in ((upper, "untrained"), (lower, "trained")):
        _draw_scores(axes, scores[name], name)
    title = "Attention from the hidden pronoun: on its noun and\nthe article before it, less the mean on the others"
    tables.suptitle(title, fontsize=10)
    _draw_map(single, shown, weights, head)
    pictures.save(figure, bench.out / "agreement.png")


def _draw_scores(axes: Axes, scores: Scores, name: str) -> None:
    from seqtrain.analysis.heads import halves

    _, measured = halves(scores.margin.shape[-1], IN_SET)
    margins = scores.margin[..., measured].mean(-1)
    found = scores.found[..., measured].mean(-1)
    # One scale for both tables, or noise of the untrained model would look like a head.
    axes.imshow(margins, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for (layer, head), margin in np.ndenumerate(margins):
        color = "white" if abs(margin) > 0.6 else "black"
        words = f"{margin:+.2f}\n{found[layer, head]:.0%} found"
        axes.text(head, layer, words, ha="center", va="center", fontsize=8, color=color)
    layers, heads = margins.shape
    axes.set_xticks(range(heads), [f"head {head + 1}" for head in range(heads)])
    axes.set_yticks(range(layers), [f"layer {layer + 1}" for layer in range(layers)])
    axes.set_title(f"{name} (chance: +0.00, {CHANCE:.0%} found)", fontsize=9)


def _draw_map(figure: Figure, shown: Sentence, weights: np.ndarray, head: str) -> None:
    axes = figure.subplots()
    words = list(shown.words)
    words[shown.hidden] = f"[MASK] ({shown.answer})"
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(words)), words, rotation=90, fontsize=8)
    axes.set_yticks(range(len(words)), words, fontsize=8)
    # The right noun in colour, the others underlined by another one: which is which is to be seen without a legend.
    for place, color in ((shown.noun, pictures.COLORS[1]), *((other, pictures.COLORS[0]) for other in shown.others)):
        axes.get_xticklabels()[place].set_color(color)
        axes.get_xticklabels()[place].set_fontweight("bold")
    axes.get_yticklabels()[shown.hidden].set_color(pictures.COLORS[1])
    axes.axhline(shown.hidden - 0.5, color=pictures.COLORS[1], linewidth=0.8)
    axes.axhline(shown.hidden + 0.5, color=pictures.COLORS[1], linewidth=0.8)
    axes.set(xlabel="is looked at", ylabel="looks")
    axes.set_title(
        f"{head}, the median sentence:\nthe pronoun and its noun in orange, the other nouns in blue", fontsize=10
    )
    figure.colorbar(image, ax=axes, label="attention", shrink=0.7)


DEMO = Demo(
    claim="To fill in a pronoun, an encoder has a head that looks from it to its noun, past other nouns between.",
    seconds=110,
    run=run,
)
