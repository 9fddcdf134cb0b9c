"""Translation pairs made from the Unicode CLDR: dates, quantities, prices and lists of names in any two languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import version
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import SPLITS, Row, Source, Split, check_fractions, no_split, shuffled
from seqtrain.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from seqtrain.data.sources.phrases import Draft

KEPT = 3  # times that each part of a held-out phrase occurs in train at least
PATIENCE = 40  # drafts for each phrase that is asked for


class Phrase(NamedTuple):
    """A phrase in both languages."""

    source: str
    target: str
    parts: tuple[str, ...]  # what it is put together from, as `Draft` has it


class LocalePhrases(Source):
    """Phrases as Babel writes them in two locales; a phrase that either locale lacks is left out.

    No source is in two splits or has two targets, and each part of a held-out phrase (a unit, a number, a name at its
    place in a list) is in train. All kinds of spaces become plain ones, on both sides.
    """

    document = "a phrase"
    fields = ("source", "target")

    def __init__(
        self,
        *,
        source_locale: str = "en",
        target_locale: str = "de",
        size: int = 12000,
        seed: int = 0,
        validation_fraction: float = 0.05,
        test_fraction: float = 0.05,
    ) -> None:
        """Set the locales, named as in the CLDR (`pt_BR`). `size`: pairs in all splits; fractions are of pairs."""
        check_fractions(validation_fraction, test_fraction)
        if size < 1:
            raise UserError(f"data.size={size}: must be above 0")
        # Babel separates by `_`, the web by `-`: both are meant.
        self.locales = {"source": source_locale.replace("-", "_"), "target": target_locale.replace("-", "_")}
        self.size = size
        self.seed = seed
        self.fractions = {"validation": validation_fraction, "test": test_fraction}

    def check(self) -> None:
        from babel.localedata import locale_identifiers  # here, as below: other sources should not wait for it

        known = locale_identifiers()
        faults = []
        for side, name in self.locales.items():
            if name not in known:
                faults.append(f"data.{side}_locale={name}: no locale of Babel's{did_you_mean(name, known)}")
        if faults:
            raise UserError(*faults)
        if len(set(self.locales.values())) == 1:
            raise UserError(
                f"data.target_locale={self.locales['target']}: is data.source_locale too; choose another one"
            )

    def rows(self, split: Split) -> Iterator[Row]:
        if not self.has(split):
            raise no_split(split)
        return map(dict, self._splits[split])  # copies: a row is the reader's own

    def has(self, split: Split) -> bool:
        return split == "train" or self.fractions[split] > 0

    def describe(self) -> dict[str, Any]:
        sizes = {split: len(self._splits[split]) for split in SPLITS if self.has(split)}
        described = {"source": "locale_phrases", "locales": self.locales, "seed": self.seed, "pairs": sizes}
        return described | {"babel": version("babel")}

    @cached_property
    def _splits(self) -> dict[Split, list[Row]]:
        self.check()
        phrases = self._phrases()
        splits: dict[Split, list[Row]] = {split: [] for split in SPLITS}
        for phrase, owner in zip(phrases, self._owners(phrases), strict=True):
            splits[owner].append({"source": phrase.source, "target": phrase.target})
        return splits

    def _phrases(self) -> list[Phrase]:
        """Return different phrases, drawn until there are `size` of them."""
        from babel import Locale

        from seqtrain.data.sources.phrases import Drafts

        locales = Locale.parse(self.locales["source"]), Locale.parse(self.locales["target"])
        by_source: dict[str, Phrase] = {}
        ambiguous: set[str] = set()
        for draft in islice(Drafts(SplitMix64(self.seed), locales), PATIENCE * self.size):
            source, target = _say(draft, locales[0]), _say(draft, locales[1])
            if not source or not target or source in ambiguous:
                continue
            known = by_source.setdefault(source, Phrase(source, target, draft.parts))
            if known.target != target:  # no model could learn which one is right, so the source is dropped
                ambiguous.add(source)
                del by_source[source]
            if len(by_source) == self.size:
                return list(by_source.values())
        raise UserError(f"data.size={self.size}: these locales gave {len(by_source)} phrases only; lower data.size")

    def _owners(self, phrases: list[Phrase]) -> list[Split]:
        """Return the split of each phrase: a phrase is held out only if train has every part of it."""
        in_train = Counter(chain.from_iterable(set(phrase.parts) for phrase in phrases))
        owners: list[Split] = ["train"] * len(phrases)
        candidates = iter(shuffled(len(phrases)).tolist())  # one order for both: none is held out twice
        for split in SPLITS[1:]:
            missing = int(len(phrases) * self.fractions[split])
            while missing and (index := next(candidates, None)) is not None:
                parts = set(phrases[index].parts)
                if all(in_train[part] > KEPT for part in parts):
                    in_train.subtract(parts)
                    owners[index] = split
                    missing -= 1
            if missing or (self.fractions[split] and split not in owners):
                raise UserError(
                    f"data.size={self.size}: too few phrases to hold out {split} of which train knows all parts; "
                    f"raise data.size, or lower data.{split}_fraction"
                )
        return owners


def _say(draft: Draft, locale: Any) -> str | None:
    """Return the phrase in a language, with plain spaces; None if the language lacks it."""
    try:
        # The CLDR has spaces that do not break, and narrow ones: a tokenizer of words would not part there.
        return " ".join(draft.say(locale).split())
    except (LookupError, ValueError):
        return None
