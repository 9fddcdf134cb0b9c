"""Synthetic reviews whose sentiment depends only on word order: the accuracy of a bag of words is chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.synthetic import Generated, phrases

WORDS = range(6, 21)  # in a sentence, commas included


PAIRS = [
    pair.split()
    for pair in phrases("""
easy difficult, good bad, great awful, lovely horrible, clever stupid, bright dull, fresh stale, warm cold, clear
vague, calm tense, honest dishonest, kind cruel, polite rude, clean dirty, fast slow, cheap expensive, funny boring,
gentle harsh, safe dangerous, simple complicated, smooth rough, strong weak, useful useless, original banal, elegant
clumsy, generous greedy, pleasant annoying, reliable faulty, rich poor, tasty bland, wise foolish, modern outdated,
quiet noisy, comfortable painful, charming tedious, coherent confusing, moving flat, light heavy, cheerful gloomy,
brilliant mediocre
""")
]

# {yes} is the adjective that the sentence affirms, {no} the one that it denies. Each comes first in half of the forms.
FORMS = [
    "{yes} , not {no} ,",
    "{yes} and not {no}",
    "{yes} rather than {no}",
    "rather {yes} than {no}",
    "more {yes} than {no}",
    "{yes} instead of {no}",
    "{yes} , never {no} ,",
    "anything but {no} , just {yes} ,",
    "not {no} but {yes}",
    "not {no} , but {yes} ,",
    "less {no} than {yes}",
    "far from {no} and simply {yes}",
    "no longer {no} but {yes}",
    "never {no} , always {yes} ,",
    "hardly {no} and mostly {yes}",
    "{yes} , with nothing {no} about it ,",
]
DEGREES = ["", "", "", "really", "quite", "very", "so", "truly"]
SUBJECTS = phrases("""
the film, the book, the new film, the old song, the meal, the soup at noon, the hotel, the room, the long journey,
the train, the first lesson, the exam, the teacher, the actor, the whole cast, the plot, the ending, the second
part, the game, the play, the music, the concert, the phone, the screen of this phone, the little camera, the coat,
the service, the waiter, the bar, the museum, the guide, the lecture, the speaker, the story, my new chair, our last
holiday, this app, this city, her novel
""")
VERBS = ["was", "is", "seemed", "felt", "looked", "turned out"]
BEFORE = [*[""] * 12, "after all", "to be fair", "in my opinion", "last week", "despite the rain", "on the whole"]
INSIDE = [*[""] * 10, "they say", "as i recall", "i think", "as far as we know", "at least on monday", "i am told"]
AFTER = phrases("""
for my aunt, in the end, to all of us, for a child, from start to finish, this time, for most people, at that hour,
when we came, for the price, to my friends, that evening, even for us, to me, in every way, on the second day
""")


@dataclass(kw_only=True, eq=False)
class WordOrder(Generated):
    """Sentences in pairs with equal bags of words and opposite labels; both sentences of a pair are in the same split.

    Labels are `positive` and `negative`, equally many in every split. Words are lower case, separated by a space.
    """

    size: int = 8000

    label_kind = "name"
    document = "a sentence"
    called = "word_order"
    in_set = 2

    def draw(self, generator: SplitMix64) -> Sequence[Row]:
        """Draw a sentence, and the same sentence with its two adjectives swapped."""
        good, bad = generator.choice(PAIRS)
        frame = _draw_frame(generator)
        two = [
            {"text": frame.format(yes=good, no=bad), "label": "positive"},
            {"text": frame.format(yes=bad, no=good), "label": "negative"},
        ]
        first = generator.below(2)  # otherwise the first sentence of a pair would always be positive
        if len(two[0]["text"].split()) not in WORDS:
            return ()
        return two[first], two[1 - first]

    def keys(self, rows: Sequence[Row]) -> set[str]:
        """Return the bag of words, which both sentences share."""
        return {" ".join(sorted(row["text"].split())) for row in rows}


def _draw_frame(generator: SplitMix64) -> str:
    """Draw a sentence with placeholders for its two adjectives, neither of them first or last."""
    form = generator.choice(FORMS)
    for place in ("{yes}", "{no}"):
        form = form.replace(place, f"{generator.choice(DEGREES)} {place}")
    # The order of the choices must not change: each one depends on the state of the generator.
    before = generator.choice(BEFORE)
    inside = generator.choice(INSIDE)
    subject = generator.choice(SUBJECTS)
    verb = generator.choice(VERBS)
    after = generator.choice(AFTER)
    if before:
        before += " ,"
    if inside:
        inside = f", {inside} ,"
    return " ".join(f"{before} {subject} {verb} {inside} {form} {after}".split())
