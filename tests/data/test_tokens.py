"""Laws of `data=tokens`: a run from a store is, to the bit, the run from its text, killed or not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.token_store import tokens as tokens_module
from tests.conftest import Seqtrain
from tests.support.tiny import GPT, assert_twins, corpus

DATA = ("data=text", "data.path=corpus.txt", "data.split_by=position", "data.test_fraction=0.05")
RUN = ("model.dim=16", "logger=none", "callbacks=none", "trainer.log_every=1")
STREAM = (*RUN, "data.eval_lanes=4", "tbptt.k2=8", "data.batch_size=4")
TASKS = {
    "gpt": (*GPT, *STREAM),
    "lstm in windows": ("model=lstm", "tbptt=windows", *STREAM),
    "backward": ("model=lstm", "task.direction=backward", *STREAM),
    "masked_lm": ("task=masked_lm", "data.batch_tokens=256", "trainer.validate_every=4", *RUN),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, seqtrain: Seqtrain) -> Path:
    """Holds corpus.txt and `store`, of many small shards."""
    folder = corpus(tmp_path_factory.mktemp("stores"))
    made = seqtrain(
        "prepare", *DATA, "tokenizer.size=300", "--store", "store", "--shard-tokens", "1000", "--processes", "1",
        cwd=folder,
    )  # fmt: skip
    assert made.rc == 0, made.err
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", TASKS)
def test_a_run_from_a_store_has_the_bits_of_a_run_from_its_text(name: str, folder: Path, seqtrain: Seqtrain) -> None:
    steps = ("trainer.max_steps=8",)
    names = [f"{name} of {kind}".replace(" ", "_") for kind in ("text", "tokens")]
    text = seqtrain("train", *TASKS[name], *DATA, "tokenizer.size=300", *steps, f"run_dir={names[0]}", cwd=folder)
    tokens = seqtrain(
        "train", *TASKS[name], "data=tokens", "data.path=store", *steps, f"run_dir={names[1]}", cwd=folder
    )
    assert (text.rc, tokens.rc) == (0, 0), text.err + tokens.err
    assert_twins(folder / names[0], folder / names[1])


def test_a_run_says_which_store_it_reads_and_goes_on_with_no_other(folder: Path, seqtrain: Seqtrain) -> None:
    words = ("train", *TASKS["gpt"], "data=tokens", "data.path=moved", "trainer.max_steps=4")
    shutil.copytree(folder / "store", folder / "moved")
    assert seqtrain(*words, "run_dir=said", cwd=folder).rc == 0
    summary = json.loads((folder / "said/summary.json").read_text())
    index = json.loads((folder / "store/index.json").read_text())
    assert summary["data"] == {"source": "tokens", "path": "moved", "hash": index["hash"]}
    assert "OfStore" in (folder / "said/config.yaml").read_text()
    shutil.rmtree(folder / "moved")
    prepare = ("prepare", "data=text", "data.path=corpus.txt", "data.split_by=position", "data.validation_fraction=0.2")
    prepare = (*prepare, "--processes", "1", "--store", "moved")
    for words, expected in (
        (("tokenizer=char",), "moved are not from the run's tokenizer"),
        (("--tokenizer", "store/tokenizer.json"), "the train split has changed since run said began"),
    ):
        assert seqtrain(*prepare, *words, cwd=folder).rc == 0
        refused = seqtrain("resume", "said", "trainer.max_steps=6", cwd=folder)
        assert refused.rc == 2
        assert expected in refused.err
        shutil.rmtree(folder / "moved")


@pytest.mark.long
def test_words_that_a_store_leaves_no_room_for_are_refused(folder: Path, seqtrain: Seqtrain) -> None:
    for words, expected in (
        (("data.path=store", "tokenizer=char"), "tokenizer=char: the token store provides the tokenizer"),
        (("data.path=nowhere",), "nowhere: no token store"),
        (("data.path=store", "task=sentiment"), "label"),
    ):
        answer = seqtrain("train", "data=tokens", *words, *RUN, "trainer.max_steps=2", cwd=folder)
        assert answer.rc == 2, answer.err
        assert expected in answer.err
        assert len(answer.err.splitlines()) == 1


def test_no_start_reads_the_tokens(folder: Path, seqtrain: Seqtrain) -> None:
    shutil.copytree(folder / "store", folder / "empty")
    for path in sorted((folder / "empty").glob("shard-*.bin"))[:3]:
        size = path.stat().st_size
        path.write_bytes(b"\xff" * size)  # ids that the vocabulary lacks: who reads one of them says so
    (folder / "empty/index.json").touch()  # the newest file: no other is compared with its hash
    # Steps that are tried for their speed would read; a run that ends by the clock tries none.
    clock = ("trainer.max_steps=null", "trainer.max_seconds=60")
    words = ("train", *TASKS["gpt"], "data=tokens", "data.path=empty", *clock, "--dry-run")
    assert seqtrain(*words, cwd=folder).rc == 0


def resident_bytes() -> int:
    """What the process holds in memory, maps of files included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_reading_a_store_from_its_beginning_to_its_end_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "MAX_MAPPED_BYTES", 1 << 22)
    size = 1 << 25  # tokens: 64 MiB
    np.zeros(size, dtype="<u2").tofile(tmp_path / "a.bin")
    found = tokens_module.MappedTokens([tokens_module.Part(tmp_path / "a.bin", "<u2", 0, size)], 256)
    before = resident_bytes()
    most = 0
    for begin in range(0, size // 4, 1 << 13):  # four lanes, each a part of every page
        found[begin + np.arange(4)[:, None] * (size // 4) + np.arange(64)]
        most = max(most, resident_bytes() - before)
    assert most < size  # half of the file
