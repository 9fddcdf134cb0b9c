"""Sequences of vectors: what is read of a file, how it is cut into splits, what is written of them, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from seqtrain.analysis.formula import formula_of
from seqtrain.analysis.profile import read
from seqtrain.data.batching.examples import TranslationExamples
from seqtrain.data.preprocess import Preprocessor, prepare_series
from seqtrain.data.sources.base import NO_LABEL
from seqtrain.data.sources.vectors import MOVES, OBJECTS, Frames, Vectors
from seqtrain.data.tokenizers.recipes import Word
from seqtrain.models.base import SequenceModel
from seqtrain.models.encoder_decoder import EncoderDecoder
from seqtrain.models.layers.front_ends import TokenEmbedding, ValueProjection
from tests.journeys.files import vectors, write
from tests.support.refused import refusal

ROWS = [
    {"values": [[1, None], [3, 4.5]], "label": "x", "target": "one"},
    {"values": [[5, 6]], "label": "y", "target": "two two"},
]


def written(folder: Path, rows: list[dict[str, Any]], name: str = "a.jsonl") -> Path:
    write(folder / name, rows)
    return folder / name


def test_a_file_gives_its_sequences_with_missing_numbers(tmp_path):
    for name in ("a.jsonl", "a.parquet"):
        series = Vectors(path=str(written(tmp_path, ROWS, name))).series
        np.testing.assert_array_equal(series.values, [[1, np.nan], [3, 4.5], [5, 6]])
        assert series.offsets.tolist() == [0, 2, 3], name
        assert series.columns == ("value 1", "value 2"), name
    fixed = pa.list_(pa.list_(pa.float32(), 2))
    table = pa.table({"values": pa.array([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], type=fixed)})
    pq.write_table(table, tmp_path / "a.parquet")
    assert Vectors(path=str(tmp_path / "a.parquet")).series.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    long = [{"values": [[n / 7] for n in range(100_000)]}, {"values": [[1]]}]  # a line longer than pyarrow's block
    assert Vectors(path=str(written(tmp_path, long))).series.offsets.tolist() == [0, 100_000, 100_001]


def test_each_sequence_stands_in_one_split_with_its_own_label_and_text(tmp_path):
    source = Vectors(path=str(written(tmp_path, vectors())), validation_fraction=0.2, test_fraction=0.2)
    rows = {json.dumps(source.series.values[a:b].tolist()): n for n, (a, b) in enumerate(ends(source))}
    found = []
    for split in ("train", "validation", "test"):
        part, texts = source.split(split), list(source.written(split))
        held = np.flatnonzero(part.end > part.begin)
        labels = source.labels(split, "name")
        assert sorted(labels) == sorted(["up", "down"] * (len(labels) // 2))
        for place, label, text in zip(held, labels, texts, strict=True):
            row = vectors()[rows[json.dumps(part.series.values[part.begin[place] : part.end[place]].tolist())]]
            assert (label, text["target"]) == (row["label"], row["target"])
        found += held.tolist()
    assert sorted(found) == list(range(80))


@pytest.mark.parametrize("clips", [40, 8])
def test_rows_of_equal_vectors_are_in_one_split(tmp_path, clips):
    rows = [{**row, "target": f"caption {n}"} for row in vectors()[:clips] for n in range(120 // clips)]
    source = Vectors(path=str(written(tmp_path, rows)), label_column="none", validation_fraction=0.1, test_fraction=0.1)
    held: list[set[bytes]] = []
    for split in ("train", "validation", "test"):
        part = source.split(split)
        spans = zip(part.begin, part.end, strict=True)
        held.append({part.series.values[begin:end].tobytes() for begin, end in spans if begin < end})
    assert all(held)
    assert sum(map(len, held)) == len(set.union(*held)) == clips


def ends(source: Vectors) -> list[tuple[int, int]]:
    return list(zip(source.series.offsets[:-1].tolist(), source.series.offsets[1:].tolist(), strict=True))


def prepared(source: Any, preprocessor: Preprocessor | None = None):
    return prepare_series(
        source,
        ("train", "validation"),
        ("values", "target"),
        recipe=Word(),
        preprocessor=preprocessor,
        say=lambda line: None,
    )


def test_an_example_holds_the_scaled_values_and_the_words_that_are_written_of_them(tmp_path):
    source = Vectors(path=str(written(tmp_path, vectors())))
    preprocessor, rows = prepared(source)
    examples = TranslationExamples(rows["train"], preprocessor, max_length=12)
    batch = examples.collate(np.arange(len(rows["train"])), 0, {"loss": 1})
    scaling, part = preprocessor.series, rows["train"].series
    assert scaling is not None
    assert part is not None
    assert batch.lengths.max() == 6  # half of max_length: longer ones are cut, and counted
    assert examples.cut == sum(length > 6 for length in (part.end - part.begin))
    for lane, place in enumerate(np.flatnonzero(part.end > part.begin)):
        values = part.series.values[part.begin[place] : part.end[place]][:6]
        scaled = np.nan_to_num((values - np.array(scaling.mean)) / np.array(scaling.std))
        assert batch.tokens[lane, : len(values), :3].numpy() == pytest.approx(scaled, abs=1e-6)
        ids = batch.target_tokens[lane, 1 : 1 + int((batch.targets[lane] >= 0).sum()) - 1].tolist()
        assert preprocessor.target_tokenizer.decode(ids).split() == batch.references()[lane].split()[:5]


def test_a_preprocessor_of_values_and_words_is_read_back_and_other_texts_are_other_data(tmp_path):
    preprocessor, rows = prepared(Vectors(path=str(written(tmp_path, vectors()))))
    preprocessor.save(tmp_path)
    assert sorted(preprocessor.hashes) == ["series", "target_tokenizer"]
    loaded = Preprocessor.load(tmp_path, preprocessor.hashes)
    assert loaded.hashes == preprocessor.hashes
    others = prepared(Vectors(path=str(written(tmp_path, [{**row, "target": "a"} for row in vectors()]))))[1]
    assert len({rows["train"].hash, rows["validation"].hash, others["train"].hash}) == 3


def test_a_movie_shows_the_objects_of_its_sentence_in_order_as_they_move():
    source = Frames(size=40, noise=0.0)
    looks: dict[str, bytes] = {}
    for movie in source.movies:
        clauses = [clause.split() for clause in movie.sentence.split(" then ")]
        assert movie.owner == sorted(movie.owner)
        for number, (_, thing, _, way) in enumerate(clauses):
            shown = movie.frames[np.array(movie.owner) == number]
            assert looks.setdefault(thing, shown[0, :-2].tobytes()) == shown[-1, :-2].tobytes()
            moved = shown[1] - shown[0]
            assert moved[-2:] == pytest.approx(0.5 * np.array(MOVES[way]))
        assert len({clause[1] for clause in clauses}) == len(clauses)
    assert set(looks) == set(OBJECTS)


def test_movies_depend_on_the_seed_and_looks_do_not():
    one, other = Frames(size=30, noise=0.0), Frames(size=40, seed=1, noise=0.0)
    assert Frames(size=40, noise=0.0).series.values[:50].tolist() == one.series.values[:50].tolist()
    assert one.movies[0].sentence != other.movies[0].sentence or one.movies[1].sentence != other.movies[1].sentence
    found = [{tuple(frame[:-2]) for movie in each.movies for frame in movie.frames} for each in (one, other)]
    assert found[0] == found[1]


def test_a_list_in_a_row_holds_a_label_for_each_of_its_vectors_and_no_other_count_is_read(tmp_path):
    for name in ("a.jsonl", "a.parquet"):
        source = Vectors(path=str(written(tmp_path, vectors(), name)), label_column="phase")
        found = {split: source.labels(split, "names") for split in ("train", "validation", "test")}
        for split, labels in found.items():
            part = source.split(split)
            for place, label in zip(np.flatnonzero(part.end > part.begin), labels, strict=True):
                assert label.split() == vectors()[place]["phase"], (name, split, place)
        assert sum(map(len, found.values())) == 80
    missing = [{**row, "phase": [None, *row["phase"][1:]]} for row in vectors()]
    for name in ("b.parquet", "b.jsonl"):  # pyarrow's reader of JSON drops such a null, and would shift the labels
        source = Vectors(path=str(written(tmp_path, missing, name)), label_column="phase")
        assert {label.split()[0] for label in source.labels("train", "names")} == {NO_LABEL}, name
    for label, says in (
        (["sit down", ""], "white space (sit down)"),
        ([[1], [2]], "a list"),
        (float("nan"), "no value"),
    ):
        table = pa.table({"values": [[[1.0], [2.0]]] * 3, "label": [label] * 3})
        pq.write_table(table, tmp_path / "c.parquet")
        said = refusal(Vectors(path=str(tmp_path / "c.parquet")).answers, "label")
        assert said.startswith(f"data.label_column=label: row 1 of {tmp_path / 'c.parquet'} has {says}"), said


def test_a_text_that_looks_like_a_time_stays_as_it_is_written(tmp_path):
    rows = [{"values": [[1], [2]], "label": ["2024-03-12", "2024-03-13"], "target": "2024-03-12"}] * 3
    source = Vectors(path=str(written(tmp_path, rows)))
    assert source.answers("target") == ["2024-03-12"] * 3
    assert source.answers("label") == ["2024-03-12 2024-03-13"] * 3


def test_arrays_of_numpy_are_read_as_the_same_rows_in_parquet(tmp_path):
    values, label = np.arange(24.0).reshape(4, 3, 2), np.array([[1.5, np.nan, 2], [3, 4, 5], [6, 7, 8], [9, 9, 9]])
    rows = [{"values": x, "label": y, "target": "a"} for x, y in zip(values.tolist(), label.tolist(), strict=True)]
    np.savez(tmp_path / "a.npz", values=values, label=label, target=np.array(["a"] * 4))
    np.save(tmp_path / "b.npy", values)
    in_parquet = Vectors(path=str(written(tmp_path, rows, "a.parquet")))
    for name in ("a.npz", "b.npy"):
        found = Vectors(path=str(tmp_path / name))
        np.testing.assert_array_equal(found.series.values, in_parquet.series.values)
        assert found.series.offsets.tolist() == in_parquet.series.offsets.tolist() == [0, 3, 6, 9, 12]
    found = Vectors(path=str(tmp_path / "a.npz"))
    assert (
        found.answers("label")
        == in_parquet.answers("label")
        == ["1.5 _ 2.0", "3.0 4.0 5.0", "6.0 7.0 8.0", "9.0 9.0 9.0"]
    )
    assert found.answers("target") == in_parquet.answers("target")
    for labels, says in (
        (label[:3], "data.label_column=label: {} has 3 rows for 4 sequences; write one row for each"),
        (label[:, :1], "use task=regress_steps; for one label each, write an array (N,), not (N, 1)"),
    ):
        np.savez(tmp_path / "d.npz", values=values, label=labels)
        said = refusal(Vectors(path=str(tmp_path / "d.npz")).labels, "train", "number")
        assert says.format(tmp_path / "d.npz") in said, said
    np.save(tmp_path / "c.npy", np.array([values[0], values[0, :1]], dtype=object), allow_pickle=True)
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "changed.npz").write_bytes(whole[:100] + b"x" * 20 + whole[120:])
    for name in ("c.npy", "cut.npz", "changed.npz"):
        said = refusal(lambda of: of.series, Vectors(path=str(tmp_path / name)))
        assert f"{name}: cannot be read as np" in said, said


FAULTS = {
    "no vectors": ([{"values": [1, 2]}], "data.values_column=values: {} contains list<item: int64> there; expected"),
    "words": ([{"values": [["a"]]}], "data.values_column=values: {} contains non-numeric values"),
    "another width": ([*ROWS, {"values": [[1, 2], [1]]}], "data.path={}: row 3 has a vector of 1 numbers, but the"),
    "an empty sequence": ([*ROWS, {"values": []}], "data.path={}: row 3 contains no vector; remove the row"),
    "no sequence": ([*ROWS, {"values": None}], "data.path={}: row 3 contains no vector; remove the row"),
    "a vector that is missing": ([*ROWS, {"values": [None]}], "data.path={}: row 3 has a vector of 0 numbers"),
    "a number beyond all": ([{"values": [[1], [1e31]]}], "data.path={}: row 1 contains 1e+31; write null for"),
    "text": (
        [{"values": "x"}, *ROWS],
        "data.path={}: cannot be read as jsonl (JSON parse error: Column(/values) "
        "changed from string to array in row 2)",
    ),
    "no such column": ([{"frames": [[1]]}], "data.values_column=values: {} has no such column; it has frames"),
}


def test_what_a_file_does_not_hold_is_refused_with_its_row_or_column(tmp_path):
    for fault, (rows, says) in FAULTS.items():
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert refusal(lambda of: of.series, Vectors(path=str(path))).startswith(says.format(path)), fault
    source = Vectors(path=str(written(tmp_path, vectors())), label_column="name")
    said = refusal(source.labels, "train", "name")
    assert said.startswith("data.label_column=name: ")
    assert "has no such column; it has values, label, score" in said
    said = refusal(Vectors(path=source.path).labels, "train", "names")
    assert "task=tag reads a label at each step, but a sequence of 5 vectors has 1 (" in said
    source = Vectors(path=source.path, label_column="phase")
    assert "has a list of labels in each row; use task=tag" in refusal(source.labels, "train", "name")
    rows = [*ROWS, {"values": [[1, 2]], "label": None, "target": None}]
    source = Vectors(path=str(written(tmp_path, rows)))
    for field in ("label", "target"):
        said = refusal(source.answers, field)
        assert said.startswith(f"data.{field}_column={field}: row 3 of ")
        assert "has no value; remove the row" in said


def test_values_that_words_are_written_of_begin_at_the_scale_of_the_vectors_of_tokens():
    torch.manual_seed(0)
    values = ValueProjection(num_features=10, dim=64, as_tokens=True)(torch.randn(10, 100, 10))
    assert 0.4 < float(values.detach().std() / TokenEmbedding(vocab_size=1000, dim=64).weight.detach().std()) < 1


def test_a_model_of_values_and_words_is_counted_and_profiled():
    fronts = {
        "embed": ValueProjection(num_features=3, dim=8),
        "target_embed": TokenEmbedding(vocab_size=5, dim=8, specials=3),
    }
    model = EncoderDecoder(**fronts, encoder="gru", decoder="gru", dim=8, num_layers=1, dropout=0.0).eval()
    assert sum(formula_of(model, 4).flops.values()) > 0
    assert SequenceModel.flops_per_token(model, 4, False) > 0
    assert read(model, 2, 4).shape == (2, 4, 8)
