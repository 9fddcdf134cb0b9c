"""A pronoun and its noun: find the attention head that links them, by a score over all heads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from seqtrain import Trained
from seqtrain.data.sources import agreement as source
from seqtrain.training.data import make_source
from shared import COLORS, Bench, Result, Row, main, new_figure, untrained

CLAIM = "To fill in a pronoun, an encoder has a head that looks from it to its noun, past other nouns between."
OVERRIDES = (
    *("task=masked_lm", "data=agreement", "tokenizer=word", "model=bert", "model.dim=64", "model.num_layers=2"),
    *("model.num_heads=4", "task.pseudo_examples=0"),
    # Random words in place of hidden ones would be false nouns: with a tenth of them nothing is learnt in these steps.
    *("task.random_share=0", "task.mask_prob=0.2", "optimizer=muon", "trainer.max_steps=3000"),
    *("trainer.validate_every=3000", "callbacks=none"),
)
IN_SET = len(source.PRONOUNS)  # sentences that follow one another and differ in their nouns' places alone
CHANCE = 1 / IN_SET  # of one of four nouns, and of one of four pronouns
LEARNED = 0.9  # accuracy of the pronoun from which there is a skill whose head can be looked for
NUM_ERRORS = 4  # standard errors above chance from which a head is no luck of the sentences


class Sentence(NamedTuple):
    """A sentence with one hidden word, and the positions of its nouns: first the one that determines the word."""

    words: list[str]
    hidden: int
    nouns: list[int]

    @property
    def text(self) -> str:
        """The sentence with [MASK] in place of the hidden word."""
        return " ".join([*self.words[: self.hidden], "[MASK]", *self.words[self.hidden + 1 :]])


class Scores(NamedTuple):
    """Scores (L, H, N) of L layers and H heads on N sentences: the attention from the hidden word's position."""

    margin: np.ndarray  # attention on the noun's phrase less the mean of that on the others'
    found: np.ndarray  # whether of all phrases the right one has the most


def run(bench: Bench) -> Result:
    """Train a masked language model, and score each head by the attention from the hidden pronoun."""
    rows: list[Row] = []
    figure = new_figure(11, 5.4)
    for seed in range(1, bench.seeds + 1):
        trained = bench.train(f"bert-{seed}", *OVERRIDES, f"seed={seed}")
        every = [sentence(row["text"], row["label"]) for row in make_source(trained.opened.config).rows("test")]
        sentences = [one for one in every if len(one.nouns) == IN_SET]  # with fewer nouns, chance is another
        _, measured = halves(len(sentences))
        scores = {}
        for name, model in (("untrained", untrained(trained)), ("trained", trained)):
            scores[name] = score(model, sentences)
            answers = model.fill([one.text for one in sentences[measured]], top_k=1)
            pairs = zip(sentences[measured], answers, strict=True)
            right = [one.words[one.hidden] == answer["masks"][0][0]["token"].strip() for one, answer in pairs]
            row: Row = {"model": name, "seed": seed} | best(scores[name])
            rows.append(row | {"fills_pronoun": sum(right) / len(right), "chance": CHANCE})
        # One picture: heads have other numbers in each seed.
        if seed == 1:
            draw(figure, scores, trained, sentences, *(int(rows[1][name]) - 1 for name in ("layer", "head")))
    return Result(rows, *judge(rows), figure)


def sentence(text: str, label: str) -> Sentence:
    """Return a sentence whose label marks each word: the hidden word, its noun, and the other nouns."""
    kinds = label.split()
    others = [place for place, kind in enumerate(kinds) if kind == source.OTHER]
    return Sentence(text.split(), kinds.index(source.ASKED), [kinds.index(source.RIGHT), *others])


def score(run: Trained, sentences: list[Sentence]) -> Scores:
    """Score each layer and head by its attention on a noun and its article."""
    begin = len(run.task.edges(run.tokenizer)[0])  # tokens before a text
    phrases = []
    for one in sentences:
        looks = torch.stack([seen.weights for seen in run.attention(one.text)])[:, :, begin + one.hidden]  # (L, H, T)
        nouns = torch.tensor(one.nouns) + begin
        # With the article before it: a layer below may have put there what the noun is, and in some trainings has.
        phrases.append(looks[..., nouns] + looks[..., nouns - 1])
    table = torch.stack(phrases, 2).double().numpy()  # (L, H, N, nouns)
    # Above, not as much as: a head that looks at nothing in particular has found nothing.
    return Scores(table[..., 0] - table[..., 1:].mean(-1), table[..., 0] > table[..., 1:].max(-1))


def halves(count: int) -> tuple[slice, slice]:
    """Return the first and the second half of sentences that come in sets. No set is split between them."""
    middle = count // IN_SET // 2 * IN_SET
    return slice(middle), slice(middle, count)


def best(scores: Scores) -> Row:
    """Choose the head on the first half and measure it on the second, which avoids selection bias.

    Each set of sentences counts once for the standard error.
    """
    choosing, measuring = halves(scores.margin.shape[-1])
    means = scores.margin[..., choosing].mean(-1)  # (L, H)
    layer, head = divmod(int(means.argmax()), means.shape[1])
    found = scores.found[layer, head, measuring]
    by_set = found.reshape(-1, IN_SET).mean(1)
    row: Row = {"layer": layer + 1, "head": head + 1, "margin": float(scores.margin[layer, head, measuring].mean())}
    return row | {
        "finds_noun": float(found.mean()),
        "finds_noun_error": float(by_set.std(ddof=1) / len(by_set) ** 0.5),
    }


def judge(rows: list[Row]) -> tuple[str, bool | None]:
    """Return a verdict in words, and True if a head was found; None if the model has not learnt the pronoun.

    In every seed the head must find the noun in more sentences than chance and than the best head of the untrained
    model, by four standard errors.
    """
    blank, trained = ([row for row in rows if row["model"] == model] for model in ("untrained", "trained"))
    # Seed by seed: a mean could hide one in which there is no such head.
    lacking = []
    for row, before in zip(trained, blank, strict=True):
        least = max(CHANCE, float(before["finds_noun"])) + NUM_ERRORS * float(row["finds_noun_error"])
        if float(row["finds_noun"]) <= least:
            lacking.append(str(row["seed"]))
    words = (
        f"The pronoun is filled in right in {shares(trained, 'fills_pronoun')} of sentences (untrained "
        f"{shares(blank, 'fills_pronoun')}, chance {CHANCE:.0%}). The best head, chosen on other sentences, looks "
        f"from the hidden pronoun at its noun, or the article before it, more than at any of the three others in "
        f"{shares(trained, 'finds_noun')} of sentences (untrained {shares(blank, 'finds_noun')}, chance {CHANCE:.0%})"
    )
    if min(float(row["fills_pronoun"]) for row in trained) < LEARNED:
        return f"{words}; below {LEARNED:.0%} the model has not learnt what a head could be found for", None
    if lacking:
        words += (
            f"; with seed {', '.join(lacking)} no single head finds it more often than chance and the untrained model"
        )
    return words, not lacking


def shares(rows: list[Row], name: str) -> str:
    """Format a share as percent; for several seeds, the smallest and the largest."""
    values = [float(row[name]) for row in rows]
    return " to ".join(dict.fromkeys(f"{value:.0%}" for value in (min(values), max(values))))


def draw(
    figure: Figure, scores: dict[str, Scores], run: Trained, sentences: list[Sentence], layer: int, head: int
) -> None:
    """Draw the score of each head, untrained and trained (left), and the best head's map of one sentence (right)."""
    tables, single = figure.subfigures(1, 2, squeeze=False, width_ratios=(4, 5))[0]
    tables.suptitle(
        "Attention from the hidden pronoun: on its noun and\nthe article before it, less the mean on the others"
    )
    _, measured = halves(len(sentences))
    for axes, (name, (margin, found)) in zip(tables.subplots(2, 1), scores.items(), strict=True):
        # One scale for both tables, or noise of the untrained model would look like a head.
        axes.imshow(margin[..., measured].mean(-1), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        for place, mean in np.ndenumerate(margin[..., measured].mean(-1)):
            share = found[place][measured].mean()
            color = "white" if abs(mean) > 0.6 else "black"
            axes.text(place[1], place[0], f"{mean:+.2f}\n{share:.0%} found", ha="center", va="center", color=color)
        axes.set(xticks=[], yticks=[], xlabel="head", ylabel="layer")
        axes.set_title(f"{name} (chance: +0.00, {CHANCE:.0%} found)", fontsize=9)
    # The sentence of the median margin, neither the head's best nor its worst.
    margins = scores["trained"].margin[layer, head, measured]
    one = sentences[measured][int(np.argsort(margins, kind="stable")[len(margins) // 2])]
    begin = len(run.task.edges(run.tokenizer)[0])
    text = slice(begin, begin + len(one.words))
    axes = single.subplots()
    axes.imshow(run.attention(one.text)[layer].weights[head, text, text], cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(one.words)), one.words, rotation=90, fontsize=8)
    axes.set_yticks(range(len(one.words)), one.words, fontsize=8)
    # The right noun in one colour, the others in another one.
    for number, place in enumerate(one.nouns):
        axes.get_xticklabels()[place].set_color(COLORS[0 if number else 1])
    axes.get_yticklabels()[one.hidden].set_color(COLORS[1])
    axes.set(xlabel="word that is looked at", ylabel="word that looks", title=f"layer {layer + 1}, head {head + 1}")


if __name__ == "__main__":
    main("agreement", CLAIM, run)
