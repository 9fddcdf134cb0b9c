"""Laws of phrases from the CLDR: a source has one target and one split, and its parts are known from train."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache

import pytest

from seqtrain.data.sources import locale_phrases as phrases
from seqtrain.data.sources.base import SPLITS
from seqtrain.data.sources.locale_phrases import LocalePhrases
from tests.support.refused import refusal


@cache
def default() -> dict[str, list[dict[str, str]]]:
    source = LocalePhrases()
    source.check()
    return {split: list(source.rows(split)) for split in SPLITS}


def test_no_source_comes_twice_so_none_is_in_two_splits_and_none_has_two_targets():
    assert [len(default()[split]) for split in SPLITS] == [10800, 600, 600]
    sources = [row["source"] for rows in default().values() for row in rows]
    assert len(set(sources)) == len(sources)
    described = json.loads(json.dumps(LocalePhrases(size=2000).describe()))
    assert (described["locales"], described["babel"][0]) == ({"source": "en", "target": "de"}, "2")


def test_every_word_and_number_of_a_held_out_phrase_is_in_train():
    def words(split: str, side: str) -> set[str]:
        return {word for row in default()[split] for word in re.findall(r"[^\W\d]+|\d+", row[side])}

    for side in ("source", "target"):
        assert len(words("train", side)) > 500
        assert words("validation", side) | words("test", side) <= words("train", side)


def test_any_two_locales_make_phrases_with_plain_spaces_and_without_identifiers():
    for source, target in (("en", "de"), ("fr", "ja"), ("ru", "pt-BR")):
        made = LocalePhrases(source_locale=source, target_locale=target, size=2000)
        made.check()
        rows = [row for split in SPLITS for row in made.rows(split)]
        assert len(rows) == 2000
        for text in (text for row in rows for text in row.values()):
            assert text
            assert text == " ".join(text.split()), (source, target)
            assert not re.search("(duration|length|mass|volume|digital)-", text), (source, target)


def test_a_source_that_had_two_targets_never_comes_back_and_what_a_language_lacks_is_left_out(monkeypatch):
    said = [("a", "v"), ("a", "w"), ("a", "v"), ("", "v"), ("b", ""), ("c", "x"), ("c", "x"), ("d", "y")]
    drafts = [phrases.Draft((en,), lambda locale, both={"en": en, "de": de}: both[str(locale)]) for en, de in said]
    monkeypatch.setattr(phrases, "Drafts", lambda *_: drafts)
    assert LocalePhrases(size=2)._phrases() == [("c", "x", ("c",)), ("d", "y", ("d",))]


def test_phrases_are_those_of_the_two_languages():
    found = {row["source"]: row["target"] for rows in default().values() for row in rows}
    known = {
        "in 3 days": "in 3 Tagen",
        "3 kilometers per hour": "3 Kilometer pro Stunde",
        "42%": "42 %",
        "English (Jersey)": "Englisch (Jersey)",
    }
    assert {source: found[source] for source in known if source in found}.items() <= known.items()
    assert len(known.keys() & found.keys()) >= 3
    months = {re.sub(r"\d+", "", said) for source, said in found.items() if re.fullmatch(r"March \d+, \d+", source)}
    assert months == {". März "}


CHILD = """
import json
from seqtrain.data.sources.locale_phrases import LocalePhrases
print(json.dumps(list(LocalePhrases(source_locale="tr", target_locale="th", size=2000).rows("test"))))
"""


def test_phrases_do_not_depend_on_the_process_or_on_locales_used_before():
    default(), LocalePhrases(source_locale="sw", target_locale="ja", size=2000).describe()
    source = LocalePhrases(source_locale="tr", target_locale="th", size=2000)
    answer = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == list(source.rows("test"))


@pytest.mark.long
def test_another_seed_gives_other_phrases():
    one, other = (list(LocalePhrases(size=2000, seed=seed).rows("train")) for seed in (0, 1))
    assert one != other


FAULTS: dict[str, dict[str, str]] = {
    "data.source_locale=pt_RB: not a locale of Babel; did you mean pt_BR?": {"source_locale": "pt_RB"},
    "data.target_locale=de: equals data.source_locale": {"source_locale": "de"},
    "data.source_locale=root: not a locale": {"source_locale": "root"},
}


def test_locales_that_cannot_be_and_too_few_phrases_are_refused():
    for says, options in FAULTS.items():
        assert says in refusal(lambda given: LocalePhrases(**given).check(), options)
    said = refusal(LocalePhrases(size=40).rows, "train")
    assert "data.size=40: too few phrases for validation have all their parts in train" in said
    said = refusal(LocalePhrases(test_fraction=0.0).rows, "test")
    assert "data.test_fraction=0: there is no test split" in said
