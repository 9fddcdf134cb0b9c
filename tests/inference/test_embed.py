"""Laws of embeddings and of search: pooling, batches, the file, and what is nearest."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from seqtrain import UserError
from seqtrain.cli import embed, lines, main
from seqtrain.inference.embedding import TopK
from seqtrain.models.base import Capability
from seqtrain.tasks.output import TextPool
from tests.support.quick import some_long
from tests.support.untrained_runs import MASKED, NEXT_TOKEN, SENTIMENT, STEP, TEXTS, TRANSLATION, double, make_run

CNN = ("task=masked_lm", "model=cnn", "model.causal=false", "tokenizer=char")
BOTH = ("task=sentiment", "model=lstm", "model.bidirectional=true", "tokenizer=char")
PREFIX = ("task=translation", "model=gpt", "tokenizer=char", "model.num_layers=2", "model.num_heads=2")
RUNS = {
    "bert": MASKED,
    "gru": SENTIMENT,
    "gpt": NEXT_TOKEN,
    "cnn": CNN,
    "lstm": BOTH,
    "prefix": PREFIX,
    "pair": TRANSLATION,
}
LINES = [*TEXTS, "a", "the street was slow " * 9]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: make_run(folder / name, *overrides) for name, overrides in RUNS.items()}


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command; gives exit code, standard output and standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        rc = main.main([str(arg) for arg in args])
        return rc, *capsys.readouterr()

    return run


# -- vectors -----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("pool", ["mean", "last"])
@pytest.mark.parametrize("name", some_long(RUNS, ["bert", "gru", "gpt"]))
def test_a_text_has_the_same_vector_alone_and_among_longer_ones(
    name: str, pool: TextPool, runs: dict[str, Path]
) -> None:
    run = double(runs[name])
    together = run.embed(LINES * 6, pool=pool)
    alone = torch.cat([run.embed([text], pool=pool) for text in LINES])
    torch.testing.assert_close(together, alone.repeat(6, 1), rtol=0, atol=1e-9)
    assert (alone[0] - alone[1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", RUNS)
def test_pooling_is_a_plain_loop_over_the_positions_of_the_text(name: str, runs: dict[str, Path]) -> None:
    run = double(runs[name])
    tokenizer = run.tokenizer
    before = [] if name in ("prefix", "pair") else [tokenizer.start]
    after = [] if name == "gpt" else [tokenizer.separator]
    for text in LINES:
        ids = tokenizer.encode(text).tolist()
        with torch.no_grad():
            hidden = run.model.encode(torch.tensor([[*before, *ids, *after]]))[0]
        mean = torch.zeros(run.model.dim, dtype=torch.double)
        for place in range(len(ids)):
            mean += hidden[len(before) + place] / len(ids)
        expected: dict[TextPool, torch.Tensor] = {
            **{"mean": mean, "mean_all": hidden.mean(0)},
            **{"last": hidden[-1], "cls": hidden[0]},
        }
        if Capability.CAUSAL in run.model.capabilities:
            del expected["cls"]
        for pool, vector in expected.items():
            torch.testing.assert_close(run.embed([text], pool=pool)[0], vector, rtol=0, atol=1e-9)


def test_what_a_model_does_not_have_is_refused(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    files = ("--input", tmp_path / "in.txt", "--output", tmp_path / "out.parquet")
    rc, _, err = call("embed", runs["gpt"], *files, "--pool", "cls")
    assert (rc, err) == (
        2,
        "error: --pool cls: the first position of model=gpt sees no later token; use mean or last\n",
    )
    rc, _, err = call("embed", runs["pair"], *files, "--pool", "cls")
    assert (rc, err) == (
        2,
        "error: --pool cls: before a source stands no token that could be its vector; use mean or last\n",
    )
    rc, _, err = call("embed", runs["bert"], *files[:3], tmp_path / "none" / "out.parquet")
    assert (rc, err) == (2, f"error: --output {tmp_path / 'none' / 'out.parquet'}: there is no such folder\n")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    with pytest.raises(UserError, match="text 2: holds no text"):
        double(runs["bert"]).embed(["a", ""])


# -- the file ----------------------------------------------------------------------------------------------------


def test_the_file_holds_the_vectors_of_the_good_lines_and_where_they_stand(
    runs: dict[str, Path], call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "GROUP", 2)
    source, target = tmp_path / "in.txt", tmp_path / "out.parquet"
    source.write_bytes("\n".join([*TEXTS[:2], "", *TEXTS[2:]]).encode() + b"\n\xff\n")
    rc, out, err = call("embed", runs["bert"], "--input", source, "--output", target, "--pool", "cls")
    assert (rc, out) == (2, "")
    assert err.splitlines()[:2] == [
        f"error: {source}:3: holds no text",
        f"error: {source}:6: byte 0 of the line is not UTF-8",
    ]
    table = parquet.read_table(target)
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float32())
    assert table.column("text").to_pylist() == TEXTS
    assert table.column("line").to_pylist() == [1, 2, 4, 5]
    expected = double(runs["bert"]).embed(TEXTS, pool="cls").float().numpy()
    np.testing.assert_allclose(np.array(table.column("embedding").to_pylist()), expected, rtol=0, atol=1e-5)
    stored = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert stored["seqtrain.step"] == str(STEP)
    assert stored["seqtrain.pool"] == "cls"


def test_a_command_that_breaks_leaves_the_old_file(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    (tmp_path / "out.parquet").write_text("old")
    monkeypatch.setattr(embed, "GROUP", 1)
    sound, seen = embed.readable, []

    def breaking(*args: Any) -> Any:
        seen.append(args)
        if len(seen) == 3:
            raise RuntimeError
        return sound(*args)

    monkeypatch.setattr(embed, "readable", breaking)
    args = [str(runs["gru"]), "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.parquet")]
    with pytest.raises(RuntimeError):
        embed.main(args)
    assert (tmp_path / "out.parquet").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.parquet"]


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own memory, which holds every text that is kept; without the vectors, to be quick."""
    monkeypatch.setattr(embed, "readable", lambda trained, lines: lines[:1])
    monkeypatch.setattr(embed, "GROUP", 64)
    monkeypatch.setattr(lines, "CHUNK", 1 << 12)

    def peak(count: int) -> int:
        (tmp_path / "in.txt").write_text("the street was long, and that is all that there is to say\n" * count)
        args = [str(runs["gru"]), "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.parquet")]
        tracemalloc.start()
        try:
            embed.main(args)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(70)  # what is imported and cached once
    assert peak(300 * embed.GROUP) < 1.5 * peak(30 * embed.GROUP)


# -- search ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", some_long(["bert", "gru", "gpt"], ["gru"]))
@pytest.mark.parametrize("pool", ["mean", "last"])
def test_a_text_of_the_corpus_is_nearest_to_itself_with_cosine_one(
    name: str, pool: str, runs: dict[str, Path], call: Any, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("\n".join(LINES))
    args = ("--corpus", tmp_path / "in.txt", "--pool", pool, "--json", "--top-k", 3)
    for number, text in enumerate(LINES, 1):
        rc, out, err = call("search", runs[name], text, *args)
        found = [json.loads(line) for line in out.splitlines()]
        assert (rc, err, len(found)) == (0, "", 3)
        assert (found[0]["text"], found[0]["line"]) == (text, number)
        assert found[0]["score"] == pytest.approx(1, abs=1e-6)
        assert found[0]["score"] > found[1]["score"] >= found[2]["score"]


def test_a_corpus_of_vectors_gives_what_its_texts_give(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    source, vectors = tmp_path / "in.txt", tmp_path / "out.parquet"
    source.write_text("\n".join(LINES))
    assert call("embed", runs["bert"], "--input", source, "--output", vectors, "--pool", "last")[0] == 0
    of_texts = call("search", runs["bert"], "a slow film", "--corpus", source, "--pool", "last")
    of_vectors = call("search", runs["bert"], "a slow film", "--corpus", vectors)
    assert of_texts == of_vectors
    assert of_texts[1].count("\n") == 5


def test_vectors_of_another_run_step_or_pool_are_refused(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    vectors = tmp_path / "out.parquet"
    call("embed", runs["gru"], "--input", tmp_path / "in.txt", "--output", vectors)
    rc, _, err = call("search", runs["bert"], "a", "--corpus", vectors)
    assert rc == 2
    assert f"they are of run {runs['gru'].resolve()}, not {runs['bert'].resolve()}" in err
    rc, _, err = call("search", runs["gru"], "a", "--corpus", vectors, "--pool", "last")
    assert rc == 2
    assert "they are of pool mean, not last;" in err
    table = parquet.read_table(vectors)
    metadata = {**table.schema.metadata, b"seqtrain.step": b"8"}
    parquet.write_table(table.replace_schema_metadata(metadata), vectors)
    rc, _, err = call("search", runs["gru"], "a", "--corpus", vectors)
    assert rc == 2
    assert f"they are of step 8, not {STEP};" in err


def test_a_corpus_that_is_none_is_named(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "other.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    for name, reason in (
        ("none.txt", "No such file or directory"),
        ("other.parquet", "not made by `seqtrain embed`"),
        ("torn.parquet", "not a parquet file that can be read"),
    ):
        rc, out, err = call("search", runs["gru"], "a", "--corpus", tmp_path / name)
        assert (rc, out, err.count("\n")) == (2, "", 1)
        assert name in err
        assert reason in err
    (tmp_path / "in.txt").write_bytes(b"a film\n\xff\n")
    rc, out, err = call("search", runs["gru"], "a", "--corpus", tmp_path / "in.txt")
    assert (rc, out.count("\n"), err.count("\n")) == (2, 1, 1)


def test_the_nearest_of_many_groups_are_those_of_all_and_of_equals_the_first() -> None:
    vectors = torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    vectors[150] = 3 * vectors[20]  # the same direction
    vectors[60] = 0
    query = vectors[20] + 0.01
    scores = [float(v @ query / v.norm() / query.norm()) if v.norm() else 0.0 for v in vectors]
    nearest = TopK(query, 10)
    for begin in range(0, 200, 7):
        nearest.add(vectors[begin : begin + 7], range(begin, min(begin + 7, 200)))
    expected = sorted(range(200), key=lambda index: (-round(scores[index], 12), index))[:10]
    assert sorted(index for _, index in nearest.best) == sorted(expected)
    assert [score for score, _ in nearest.best] == pytest.approx([scores[index] for index in expected])
    twin = TopK(query, 2)
    twin.add(query.repeat(3, 1), ["first", "second", "third"])
    assert [text for _, text in twin.best] == ["first", "second"]
