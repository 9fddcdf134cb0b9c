"""Translation pairs made from the Unicode CLDR: dates, quantities, prices and lists of names in any two languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import SPLITS, Row, Source, Split, check_fractions, no_text, shuffled
from seqtrain.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from seqtrain.data.sources.phrases import Draft

KEPT = 3  # times that each part of a held-out phrase occurs in train at least
PATIENCE = 40  # drafts for each phrase that is asked for


class LocalePhrases(Source):
    """Phrases as Babel says them in two locales; what either locale lacks is left out.

    No source is in two splits or has two targets, and each part of a held-out phrase (a unit, a number, a name at its
    place in a list) is in train. All kinds of spaces are plain ones, on both sides.
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
        """`size`: pairs in all splits together; fractions are of them. Locales are named as by CLDR: `pt_BR`."""
        check_fractions(validation_fraction, test_fraction)
        if size < 1:
            raise UserError(f"data.size={size}: must be above 0")
        self.locales = {"source": source_locale.replace("-", "_"), "target": target_locale.replace("-", "_")}
        self.size = size
        self.seed = seed
        self.fractions = {"validation": validation_fraction, "test": test_fraction}

    def check(self) -> None:
        from babel.localedata import locale_identifiers

        known = locale_identifiers()
        unknown = [
            f"data.{side}_locale={name}: no locale of Babel's{did_you_mean(name, known)}"
            for side, name in self.locales.items()
            if name not in known
        ]
        if unknown:
            raise UserError(*unknown)
        if len(set(self.locales.values())) == 1:
            raise UserError(
                f"data.target_locale={self.locales['target']}: is data.source_locale too; choose another one"
            )

    def documents(self, split: Split) -> Iterator[str]:
        """Always raises UserError: there are pairs only."""
        raise no_text("data=locale_phrases")

    def rows(self, split: Split) -> Iterator[Row]:
        if not self.has(split):
            raise UserError(f"data.{split}_fraction=0: there is no {split} split; set data.{split}_fraction above 0")
        return (dict(row) for row in self._splits[split])

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
        owners = self._owners([parts for _, _, parts in phrases])
        return {
            split: [
                {"source": source, "target": target}
                for (source, target, _), owner in zip(phrases, owners, strict=True)
                if owner == split
            ]
            for split in SPLITS
        }

    def _phrases(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Source, target and parts of different phrases, drawn until there are as many as are asked for."""
        from babel import Locale

        from seqtrain.data.sources.phrases import Drafts

        locales = Locale.parse(self.locales["source"]), Locale.parse(self.locales["target"])
        found: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        ambiguous: set[str] = set()
        for _, draft in zip(range(PATIENCE * self.size), Drafts(SplitMix64(self.seed), locales), strict=False):
            source, target = (_said(draft, locale) for locale in locales)
            if not source or not target or source in ambiguous:
                continue
            if found.setdefault(source, (source, target, draft.parts))[1] != target:
                ambiguous.add(source)
                del found[source]
            if len(found) == self.size:
                return list(found.values())
        raise UserError(f"data.size={self.size}: these locales gave {len(found)} phrases only; lower data.size")

    def _owners(self, parts: list[tuple[str, ...]]) -> list[Split]:
        """The split of each phrase: held out is only what train knows every part of."""
        left = Counter(part for each in parts for part in set(each))
        owners: list[Split] = ["train"] * len(parts)
        order = iter(shuffled(len(parts)).tolist())
        for split in SPLITS[1:]:
            wanted = int(len(parts) * self.fractions[split])
            for index in order:
                if wanted == 0:
                    break
                own = set(parts[index])
                if all(left[part] > KEPT for part in own):
                    left.subtract(own)
                    owners[index] = split
                    wanted -= 1
            if wanted or (self.fractions[split] and split not in owners):
                raise UserError(
                    f"data.size={self.size}: too few phrases to hold out {split} of which train knows all parts; "
                    f"raise data.size, or lower data.{split}_fraction"
                )
        return owners


def _said(draft: Draft, locale: Any) -> str | None:
    """The phrase in a language, with plain spaces; None where the language lacks it."""
    try:
        return " ".join(draft.say(locale).split())
    except (LookupError, ValueError):
        return None
