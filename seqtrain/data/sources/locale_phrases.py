"""Translation pairs from the Unicode CLDR: dates, quantities, prices and lists of names in any two languages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from functools import cached_property, partial
from importlib.metadata import version
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, get_args

from babel import Locale, dates, lists, localedata, numbers, units

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import SPLITS, Row, Source, Split, check_fractions, no_split, shuffled
from seqtrain.errors import UserError, did_you_mean

KEPT = 3  # minimum number of times that train contains each part of a held-out phrase
PATIENCE = 40  # maximum number of drafts per requested phrase


class Phrase(NamedTuple):
    """A phrase in both languages."""

    source: str
    target: str
    parts: tuple[str, ...]  # its components, as in `Draft`


class LocalePhrases(Source):
    """Phrases as Babel formats them in two locales; a phrase that either locale lacks is left out.

    Each source is in one split and has one target. Each part of a held-out phrase (a unit, a number, a name at its
    position in a list) is in train. All kinds of white space become plain spaces, on both sides.
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
        # Babel separates by `_`, the web by `-`; both are accepted.
        self.locales = {"source": source_locale.replace("-", "_"), "target": target_locale.replace("-", "_")}
        self.size = size
        self.seed = seed
        self.fractions = {"validation": validation_fraction, "test": test_fraction}

    def check(self) -> None:
        known = localedata.locale_identifiers()
        faults = []
        for side, name in self.locales.items():
            if name not in known:
                faults.append(f"data.{side}_locale={name}: not a locale of Babel{did_you_mean(name, known)}")
        if faults:
            raise UserError(*faults)
        if len(set(self.locales.values())) == 1:
            raise UserError(
                f"data.target_locale={self.locales['target']}: equals data.source_locale; choose another one"
            )

    def rows(self, split: Split) -> Iterator[Row]:
        if not self.has(split):
            raise no_split(split)
        return map(dict, self._splits[split])  # copies: a caller may change a row

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
        """Return `size` different phrases; raise UserError if the locales give fewer."""
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
        raise UserError(f"data.size={self.size}: these locales give only {len(by_source)} phrases; lower data.size")

    def _owners(self, phrases: list[Phrase]) -> list[Split]:
        """Return the split of each phrase: a phrase is held out only if train has every part of it."""
        in_train = Counter(chain.from_iterable(set(phrase.parts) for phrase in phrases))
        owners: list[Split] = ["train"] * len(phrases)
        candidates = iter(shuffled(len(phrases)).tolist())  # one order for both splits: no phrase is held out twice
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
                    f"data.size={self.size}: too few phrases for {split} have all their parts in train; raise "
                    f"data.size, or lower data.{split}_fraction"
                )
        return owners


def _say(draft: Draft, locale: Any) -> str | None:
    """Return the phrase in a language, with plain spaces; None if the language lacks it."""
    try:
        # The CLDR contains no-break and narrow spaces, at which a word tokenizer would not split.
        return " ".join(draft.say(locale).split())
    except (LookupError, ValueError):
        return None


Style = Literal["full", "long", "medium"]
Length = Literal["long", "short"]
Span = Literal["year", "month", "week", "day", "hour", "minute", "second"]
Conjunction = Literal["standard", "or", "unit"]


def _words(text: str) -> list[str]:
    return text.split()


NUMBERS = [*range(1, 41), *range(45, 100, 5), 100, 120, 150, 200, 250, 365, 400, 500, 750, 1000, 1500, 2000, 5000, 9999]
PRICES = _words("""
0.5 0.99 1 1.5 1.99 2 2.5 2.99 3 4 4.5 4.99 5 6 7.5 8 9.99 10 12 12.5 14.95 15 17.5 19.99 20 24.9 25 30 35.5 40 45
49.99 50 60 75 79.9 80 99 100 120 149.5 150 199 200 250 299.99 300 400 499 500 750 999 1000 1234.5 1500
1999 2500 5000 7999.9 9999
""")
UNITS = _words("""
length-kilometer length-meter length-centimeter length-millimeter length-mile length-foot length-inch length-yard
mass-kilogram mass-gram mass-tonne mass-pound volume-liter volume-milliliter volume-gallon area-hectare
area-square-meter area-square-kilometer duration-second duration-minute duration-hour duration-day duration-week
duration-month duration-year temperature-celsius digital-megabyte digital-gigabyte energy-kilowatt-hour power-watt
""")
RATES = _words("""
length-kilometer/duration-hour length-mile/duration-hour length-meter/duration-second volume-liter/duration-minute
digital-megabyte/duration-second mass-gram/duration-day mass-kilogram/area-hectare volume-liter/duration-day
""")
STYLES: tuple[Style, ...] = get_args(Style)
LENGTHS: tuple[Length, ...] = get_args(Length)
SPANS: tuple[Span, ...] = get_args(Span)
CURRENCIES = _words("EUR USD GBP JPY CHF CAD AUD CNY INR BRL MXN SEK NOK DKK PLN CZK HUF TRY ZAR KRW")
TERRITORIES = _words("""
DE FR IT ES PT GB IE NL BE AT CH DK SE NO FI PL CZ HU RO BG GR TR RU UA US CA MX BR AR CL PE CN JP KR IN VN TH EG MA ZA
KE NG AU NZ IL
""")
LANGUAGES = _words("""
de fr it es pt en ga nl da sv nb fi pl cs hu ro bg el tr ru uk zh ja ko hi vi th ar sw he fa ta id et lv lt
""")
PLACE = re.compile("[a-z]{2}_[A-Z]{2}")  # identifiers of a language and a territory


class Draft(NamedTuple):
    """A phrase before it is written in a language."""

    parts: tuple[str, ...]  # its components: a model that knows each of them can write the phrase
    say: Callable[[Locale], str]  # returns its text; raises LookupError or ValueError if the language lacks it


class Drafts:
    """Generator of phrases of all kinds, for a pair of languages."""

    def __init__(self, generator: SplitMix64, locales: tuple[Locale, Locale]) -> None:
        self.generator = generator
        self.locales = locales
        self.places = [each for each in localedata.locale_identifiers() if PLACE.fullmatch(each)]
        # Kinds with more phrases are drawn more often, because the phrases of a small kind are soon exhausted.
        often = (self.day, self.quantity, self.price)
        seldom = (self.percentage, self.months)
        usual = (self.day_and_time, self.rate, self.span, self.spans, self.territories, self.languages, self.place)
        self.kinds = [*often * 3, *usual * 2, *seldom, self.clock, self.month, self.weekdays]

    def __iter__(self) -> Iterator[Draft]:
        """Yield drafts without end."""
        while True:
            yield self.generator.choice(self.kinds)()

    def day(self) -> Draft:
        """Draw a date: Thursday, March 5, 2020."""
        day = self._date()
        style = self.generator.choice(STYLES)
        # The month and its style are one part: the full name does not determine the abbreviation.
        parts = [f"date {style}", f"{style} month {day.month}", f"day {day.day}", f"year {day.year}"]
        if style == "full":
            parts.append(f"weekday {day.weekday()}")
        return Draft(tuple(parts), lambda locale: dates.format_date(day, style, locale))

    def month(self) -> Draft:
        """Draw a month: March 2020."""
        day = self._date()
        parts = (f"lone month {day.month}", f"year {day.year}")
        return Draft(parts, lambda locale: dates.format_skeleton("yMMMM", day, locale=locale))

    def months(self) -> Draft:
        """Draw a range of months: March – May 2020."""
        first, last = sorted(self.generator.sample(range(1, 13), 2))
        year = self._date().year

        def say(locale: Locale) -> str:
            return dates.format_interval(date(year, first, 1), date(year, last, 1), "yMMMM", locale=locale)

        return Draft((f"months {first} to {last}", f"year {year}"), say)

    def clock(self) -> Draft:
        """Draw a time: 3:05 PM."""
        at = self._time()
        return Draft((f"clock {at}",), lambda locale: dates.format_time(at, "short", locale=locale))

    def day_and_time(self) -> Draft:
        """Draw a date with a time: Mar 5, 2020, 3:05:00 PM."""
        at = datetime.combine(self._date(), self._time())
        parts = (f"with time month {at.month}", f"with time day {at.day}", f"with time year {at.year}", f"{at.time()}")
        return Draft(parts, lambda locale: dates.format_datetime(at, "medium", locale=locale))

    def quantity(self) -> Draft:
        """Draw a quantity: 3 kilometers."""
        return self._quantity(
            self.generator.choice(UNITS), self.generator.choice(NUMBERS), self.generator.choice(LENGTHS)
        )

    def rate(self) -> Draft:
        """Draw a rate: 3 kilometers per hour."""
        count = self.generator.choice(NUMBERS)
        rate = self.generator.choice(RATES)
        unit, per = rate.split("/")

        def say(locale: Locale) -> str:
            phrase = units.format_compound_unit(count, unit, denominator_unit=per, locale=locale)
            return _known(phrase, unit, per)

        return Draft((f"number {count}", f"{rate} {self._plurals(count)}"), say)

    def span(self) -> Draft:
        """Draw a distance in time: in 3 days; 3 days ago."""
        unit = self.generator.choice(SPANS)
        count = self.generator.choice(NUMBERS[:40])
        sign = self.generator.choice([1, -1])
        # Babel's own lengths of a year and a month, so that it writes the same count.
        days = {"year": 365, "month": 30, "week": 7}
        one = timedelta(days=days[unit]) if unit in days else timedelta(**{f"{unit}s": 1})

        def say(locale: Locale) -> str:
            # A threshold that is never reached: 9 days must not become a week.
            return dates.format_timedelta(sign * count * one, unit, 1e9, add_direction=True, locale=locale)

        return Draft((f"number {count}", f"span {sign} {unit} {self._plurals(count)}"), say)

    def spans(self) -> Draft:
        """Draw a duration: 3 hours, 5 minutes."""
        first = self.generator.below(len(SPANS) - 1)
        quantities = []
        for unit in SPANS[first : first + 2]:  # a unit and the next smaller one
            quantities.append(self._quantity(f"duration-{unit}", self.generator.choice(NUMBERS[:30]), "long"))
        return self._list(quantities, "unit")

    def price(self) -> Draft:
        """Draw a price: €1,234.50; 1,234.50 euros."""
        amount = float(self.generator.choice(PRICES))
        currency = self.generator.choice(CURRENCIES)
        # An amount that is written in two ways, 5 and 5.00, is two parts.
        digits = numbers.get_currency_precision(currency)
        if self.generator.below(2):
            parts = (f"price {amount:.{digits}f}", f"sign of {currency}")
            return Draft(parts, lambda locale: numbers.format_currency(amount, currency, locale=locale))
        parts = (f"amount {amount:.{digits}f}", f"name of {currency} {self._plurals(amount)}")
        return Draft(parts, lambda locale: numbers.format_currency(amount, currency, locale=locale, format_type="name"))

    def percentage(self) -> Draft:
        """Draw a percentage: 34%."""
        count = self.generator.choice(range(1, 101))
        return Draft((f"percentage {count}",), lambda locale: numbers.format_percent(count / 100, locale=locale))

    def territories(self) -> Draft:
        """Draw a list of territories: Germany, Italy, and France."""
        return self._names("territory", TERRITORIES, lambda name, locale: locale.territories[name])

    def languages(self) -> Draft:
        """Draw a list of languages: German or Italian."""
        return self._names("language", LANGUAGES, lambda name, locale: locale.languages[name])

    def weekdays(self) -> Draft:
        """Draw a list of weekdays: Monday, Tuesday, and Friday."""
        return self._names("weekday", range(7), lambda day, locale: locale.days["format"]["wide"][day])

    def place(self) -> Draft:
        """Draw a locale: German (Switzerland)."""
        language, territory = self.generator.choice(self.places).split("_")

        def say(locale: Locale) -> str:
            # If the territory has no name, Babel raises an unrelated error.
            if language not in locale.languages or territory not in locale.territories:
                raise LookupError(f"{language} {territory}")
            return Locale(language, territory).get_display_name(locale) or ""

        return Draft((f"place {language}", f"place {territory}"), say)

    def _date(self) -> date:
        return date(1990, 1, 1) + timedelta(days=self.generator.below(41 * 365))

    def _time(self) -> time:
        return time(self.generator.below(24), self.generator.choice([0, 15, 30, 45]))

    def _plurals(self, count: float) -> str:
        """Return the plural forms that both languages use for this count."""
        return " ".join(locale.plural_form(count) for locale in self.locales)

    def _quantity(self, unit: str, count: int, length: Length) -> Draft:
        def say(locale: Locale) -> str:
            return _known(units.format_unit(count, unit, length, locale=locale), unit)

        return Draft((f"number {count}", f"{length} {unit} {self._plurals(count)}"), say)

    def _names(self, kind: str, identifiers: Sequence[Any], name: Callable[[Any, Locale], str]) -> Draft:
        """Draw two or three names, joined by `and` or `or`; `name` gives a name in a language."""
        chosen = self.generator.sample(identifiers, 2 + self.generator.below(2))
        items = [Draft((f"{kind} {identifier}",), partial(name, identifier)) for identifier in chosen]
        how: Conjunction = "standard"
        if self.generator.below(2):
            how = "or"
        return self._list(items, how)

    def _list(self, items: list[Draft], how: Conjunction) -> Draft:
        size = len(items)
        parts = [f"list {how} {size}"]
        for place, item in enumerate(items):
            # A part includes its position: many languages join or decline the last item of a list differently.
            parts += [f"{part}, {place} of {size}" for part in item.parts]

        def say(locale: Locale) -> str:
            return lists.format_list([item.say(locale) for item in items], how, locale)

        return Draft(tuple(parts), say)


def _known(phrase: str | None, *identifiers: str) -> str:
    """Return `phrase`; raise LookupError if it is empty, or Babel has put an identifier in place of a missing name."""
    if not phrase or any(each in phrase for each in identifiers):
        raise LookupError(f"no name for {' or '.join(identifiers)}")
    return phrase
