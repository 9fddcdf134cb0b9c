"""The example of docs/stores.md that cleans and deduplicates with datatrove, before `seqtrain prepare`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seqtrain.data.token_store.index import open_store
from tests.conftest import Seqtrain
from tests.support.raw_texts import KEPT, cleaned, cleaning_script, parts, write_raw

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
pytest.importorskip("datatrove", reason="needs datatrove: pip install 'datatrove[io,processing]' spacy")
pytest.importorskip("spacy", reason="datatrove needs spacy to find words: pip install spacy")


def test_what_datatrove_has_cleaned_becomes_a_store_of_each_text_once(seqtrain: Seqtrain, tmp_path: Path) -> None:
    write_raw(tmp_path)
    (tmp_path / "clean.py").write_text(cleaning_script())
    done = subprocess.run([sys.executable, "clean.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert cleaned(tmp_path) == KEPT

    words = ("data=text", "data.path=clean/*.jsonl", "tokenizer=byte", "data.validation_fraction=0.2")
    answer = seqtrain("prepare", *words, "--store", "store", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    splits = open_store(tmp_path / "store").splits.values()
    assert sum(len(corpus.documents) - 1 for corpus in splits) == len(KEPT)
    assert sum(corpus.num_bytes for corpus in splits) == sum(len(text.encode()) for text in KEPT)


def test_the_texts_before_hold_more_than_what_is_kept() -> None:
    raw = {json.loads(line)["text"] for part in parts() for line in part}
    assert raw > set(KEPT)
