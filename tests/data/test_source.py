"""Laws of the sources: how splits are cut, and what the standard library gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from seqtrain.config import check, preflight
from seqtrain.config.trust import trusting
from seqtrain.data.sources.base import SPLITS, Cut, Row, Segment, Source, Split, shuffled
from seqtrain.data.sources.python_stdlib import PythonStdlib
from seqtrain.data.sources.text import Text
from seqtrain.data.token_store.prepare import Order, prepare
from seqtrain.data.tokenizers.recipes import Byte
from seqtrain.errors import UserError
from seqtrain.experiment.data import may_leak
from seqtrain.training import effects
from seqtrain.training.data import make_data, make_source

DOCUMENTS = [f"document {i}\n" * (i % 5 + 1) for i in range(100)]


def test_a_source_has_at_most_eight_members_to_know() -> None:
    members = {name for name in vars(Source) if not name.startswith("_")}
    assert len(members | set(Source.__annotations__)) <= 8


class Outspoken(Source):
    """A source of others with each member that some part of the program asks for beside those of `Source`."""

    document = "a row"
    fields = ("text", "label")
    is_disjoint = True

    def __init__(self, size: int) -> None:
        self.size = size
        self.expects_numbers = False

    def rows(self, split: Split) -> Iterator[Row]:
        assert self.expects_numbers
        return ({"text": f"{split} {number}", "label": str(number)} for number in range(self.size))

    def check(self) -> None:
        assert self.expects_numbers

    def has(self, split: Split) -> bool:
        return split != "test"

    def describe(self) -> dict[str, Any]:
        return {"source": "outspoken"}

    def notes(self) -> list[str]:
        return [f"{self.size} rows"]

    def expect_numbers(self) -> None:
        self.expects_numbers = True

    def chance(self) -> float:
        return 0.25

    def idle(self) -> dict[str, str]:
        return {"size": "the record says it"}

    def segments(self, split: Split) -> Iterator[Segment]:
        yield from (Segment("ab", False), Segment("c", True))

    def origins(self, splits: Sequence[Split]) -> dict[str, str]:
        return dict.fromkeys(splits, "as it was")


def test_what_few_sources_have_is_asked_for_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    yaml = f"defaults: [batching]\n_target_: {Outspoken.__module__}.Outspoken\nsize: 9\n"
    (tmp_path / "data" / "outspoken.yaml").write_text(yaml)
    with trusting(["tests"]):
        config = check.compose(["task=regress", "data=outspoken", "tokenizer=byte"], [tmp_path]).config
        preflight.check_machine_and_data(config)
        with pytest.raises(UserError, match=r"data\.size: the record says it; leave it out"):
            effects.check(config, ["data.size=9"])
        lines: list[str] = []
        data = make_data(config, ("train",), lines.append)
        source = make_source(config)
    assert "9 rows" in lines
    assert len(list(data.source.rows("train"))) == 9
    assert data.rows["train"].chance == 0.25
    assert not may_leak(source)
    order = Order(source, Byte(), None, {}, processes=1, shard_tokens=100, sample=100)
    store = prepare(tmp_path / "store", order, lambda line: None)
    assert store.tokenizer.decode(store.splits["train"][0].tolist()) == "abc"
    assert json.loads((tmp_path / "store" / "source.json").read_text())["origins"]["train"] == "as it was"


def read(_split: Any) -> Iterator[str]:
    return iter(DOCUMENTS)


def test_every_document_is_in_one_split_in_its_order_by_a_choice_that_depends_on_their_number_alone():
    cut = Cut(by="document", validation=0.1, test=0.2)
    parts = [list(cut.documents(read, split)) for split in SPLITS]
    assert [len(part) for part in parts] == [70, 10, 20]
    assert sorted(text for part in parts for text in part) == sorted(DOCUMENTS)
    assert all(part == sorted(part, key=DOCUMENTS.index) for part in parts)
    assert shuffled(10).tolist() == [2, 4, 6, 8, 5, 1, 7, 0, 9, 3]
    assert [DOCUMENTS.index(text) for text in parts[1]] == sorted(shuffled(100)[:10])


def test_only_a_split_without_a_path_is_cut_off(tmp_path):
    for name, count in {"train": 100, "validation": 3, "test": 3}.items():
        rows = "".join(json.dumps({"text": f"{name} {number}"}) + "\n" for number in range(count))
        (tmp_path / f"{name}.jsonl").write_text(rows)
    for given, sizes in (((), (70, 10, 20)), (("validation",), (80, 3, 20)), (("test",), (90, 10, 3))):
        paths = {f"{split}_path": str(tmp_path / f"{split}.jsonl") for split in given}
        source = Text(path=str(tmp_path / "train.jsonl"), **paths, validation_fraction=0.1, test_fraction=0.2)
        assert tuple(len(list(source.documents(split))) for split in SPLITS) == sizes, given


def test_cut_by_position_loses_no_character_and_fractions_are_exact_decimals():
    cut = Cut(by="position", validation=0.1, test=0.2)
    train, validation, test = ("".join(cut.documents(read, split)) for split in SPLITS)
    total = len("".join(DOCUMENTS))
    assert train + validation + test == "".join(DOCUMENTS)
    assert (len(train), len(validation)) == (total * 7 // 10, total * 8 // 10 - total * 7 // 10)
    cut = Cut(by="position", validation=0.05, test=0.05)  # 1 - 0.05 - 0.05 < 0.9 in floats
    assert len("".join(cut.documents(lambda _: iter(["x" * 1000]), "train"))) == 900


def test_fractions_that_leave_nothing_to_train_on_or_to_measure_are_refused():
    for validation, test in ((1.0, 0.0), (-0.1, 0.0), (0.0, 2.0), (0.5, 0.5)):
        with pytest.raises(UserError, match=r"data\.(validation|test)_fraction"):
            Cut(by="document", validation=validation, test=test)
    with pytest.raises(UserError, match=r"data\.validation_fraction=0"):
        Cut(by="document", validation=0.0, test=0.0).documents(read, "validation")


def test_tiny_shakespeare_is_cut_where_everyone_cuts_it(shared_data):
    source = Text(path=str(shared_data / "tinyshakespeare" / "input.txt"), split_by="position")
    source.check()
    text = (shared_data / "tinyshakespeare" / "input.txt").read_text()
    assert list(source.documents("train")) == [text[:1003854]]
    assert list(source.documents("validation")) == [text[1003854:]]


@pytest.fixture
def library(tmp_path, monkeypatch) -> PythonStdlib:
    """A small standard library, with what is no part of it."""
    strange = ("site-packages/c.py", "test/d.py", "x/tests/e.py", "encodings/f.py", "g.txt")
    for name in ("a.py", "z.py", "json/b.py", *strange):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "_sysconfigdata_x.py").write_text("flags")
    (tmp_path / "latin.py").write_bytes(b"# \xe9")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    return PythonStdlib(validation_fraction=0.0, test_fraction=0.0)


def test_the_library_is_its_own_source_files_in_the_order_of_their_paths(library):
    assert list(library.documents("train")) == ["a.py", "json/b.py", "z.py"]


def test_a_library_without_source_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(UserError, match="use data=text"):
        PythonStdlib().check()


def test_a_file_never_changes_sides_when_another_is_added(library, tmp_path):
    def sides() -> dict[str, str]:
        source = PythonStdlib(validation_fraction=0.3, test_fraction=0.3)
        return {text: split for split in SPLITS for text in source.documents(split)}

    for i in range(30):
        (tmp_path / f"m{i}.py").write_text(f"m{i}.py")
    before = sides()
    (tmp_path / "aaa.py").write_text("aaa.py")
    assert before.items() <= sides().items()
    assert set(before.values()) == set(SPLITS)
