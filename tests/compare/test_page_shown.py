"""What the page holds of samples, confusion counts and maps of attention: bounded, and never more than was kept."""

from __future__ import annotations

import base64
import os
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

from seqtrain.compare.entries import Entry, read
from seqtrain.compare.page import samples as shown
from tests.support import fake_runs, shown_runs


def picture(width: int = 2, height: int = 2, filler: int = 0) -> bytes:
    """A PNG file, made longer by a comment."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\x80" * width for _ in range(height)))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", rows)
        + chunk(b"tEXt", b"a\0" + os.urandom(filler))
        + chunk(b"IEND", b"")
    )


def drawn(run: Path, content: bytes) -> Path:
    (run / "plots").mkdir(exist_ok=True)
    (run / "plots" / "attention.png").write_bytes(content)
    return run


def test_samples_hold_the_newest_step_and_say_which_column_was_given_and_which_is_right(tmp_path: Path) -> None:
    entries = read([shown_runs.translations(tmp_path)])
    for found, written in zip(shown.samples(entries), shown_runs.TRANSLATIONS.values(), strict=True):
        assert [found["steps"], [kept["step"] for kept in found["kept"]]] == [2, [100, 50]]
        newest = found["kept"][0]
        assert newest["columns"] == ("source", "reference", "model")
        assert [newest["given"], newest["reference"], newest["left_out"]] == [0, 1, 0]
        assert [row[2] for row in newest["rows"]] == list(written)


def test_of_many_steps_some_are_held_evenly_and_always_each_runs_newest(tmp_path: Path) -> None:
    long, short = fake_runs.run(tmp_path / "long"), fake_runs.run(tmp_path / "short", seed=2)
    for step in range(10, 510, 10):
        shown_runs.sampled(long, step, [{"prompt": "a", "continuation": str(step)}])
        if step <= 240:
            shown_runs.sampled(short, step, [{"prompt": "a", "continuation": str(step)}])
    one, other = shown.samples(read([tmp_path]))
    steps = [kept["step"] for kept in one["kept"]]
    assert [one["steps"], len(steps), steps[0], steps[-1]] == [50, shown.MAX_STEPS, 500, 10]
    gaps = [after - before for after, before in pairwise(steps)]
    assert max(gaps) - min(gaps) <= 10
    assert other["kept"][0]["step"] == 240
    assert {kept["step"] for kept in other["kept"][1:]} < set(steps)  # steps that both have stand side by side


def test_samples_of_however_many_runs_stay_within_what_a_page_may_hold() -> None:
    for runs in (1, 500, 100_000):
        chosen = shown._chosen_steps(set(range(0, 10_000, 10)), runs)
        assert 9990 in chosen
        assert len(chosen) == 1 or len(chosen) * runs * shown.LONGEST_SAMPLE <= shown.MAX_SAMPLE_CHARACTERS


def test_long_samples_are_cut_and_the_rest_is_counted(tmp_path: Path) -> None:
    run = fake_runs.run(tmp_path / "run")
    shown_runs.sampled(run, 1, [{"text": f"{k} " + "a" * 900, "model": "b"} for k in range(9)])
    (kept,) = shown.samples(read([run]))[0]["kept"]
    assert len(kept["rows"]) + kept["left_out"] == 9
    assert len(str(kept["rows"])) < 2 * shown.LONGEST_SAMPLE
    assert {len(row[0]) for row in kept["rows"]} == {shown.LONGEST_CELL}


def test_damaged_samples_and_counts_are_said_and_cost_nothing_else(tmp_path: Path) -> None:
    run = shown_runs.sentiments(tmp_path, seeds=1) / "1"
    (run / "samples" / "step-00000050.json").write_text("[]")
    (run / "plots" / "confusion-00000050.json").write_text('{"labels": ["a"], "counts": [["<b>"]]}')
    entries = read([tmp_path])
    (run / "samples" / "step-00000060.txt").symlink_to("/etc/passwd")  # laid there while the page is made
    faults = [kept["fault"] for kept in shown.samples(entries)[0]["kept"]]
    assert "a link that leads out of its folder" in faults[0]
    assert "not in the form that a run writes" in faults[1]
    (confusion,) = shown.confusions(entries)
    assert confusion
    assert "not in the form that a run writes" in confusion["fault"]


def test_counts_are_those_of_the_newest_validation(tmp_path: Path) -> None:
    run = shown_runs.sentiments(tmp_path, seeds=1) / "1"
    shown_runs.confused(run, 90, ("no", "yes"), ((1, 2), (3, 4)))
    bare = fake_runs.run(tmp_path / "bare", seed=9)
    found, nothing = shown.confusions(read([run, bare]))
    assert found == {"step": 90, "labels": ("no", "yes"), "counts": ((1, 2), (3, 4)), "examples": 10}
    assert nothing is None


def test_of_many_labels_the_page_holds_those_that_are_taken_for_others_most(tmp_path: Path) -> None:
    size = shown.MAX_LABELS + 1
    counts = [[9 if true == taken else 0 for taken in range(size)] for true in range(size)]
    counts[3][7], counts[5][1] = 4, 6
    labels = [f"label {k}" for k in range(size)]
    run = shown_runs.confused(fake_runs.run(tmp_path / "run"), 50, labels, counts)
    (found,) = shown.confusions(read([run]))
    assert found
    assert "counts" not in found
    assert found["confused"] == [(6, "label 5", "label 1", 15), (4, "label 3", "label 7", 13)]
    assert [found["many"], found["examples"]] == [size, 9 * size + 10]


def test_maps_of_attention_are_bounded_and_what_is_left_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = picture()
    monkeypatch.setattr(shown, "MAX_PICTURES_BYTES", len(small))
    entries: list[Entry] = []
    for name, content in {
        **{"a": small, "b": small, "c": picture(filler=shown.MAX_PICTURE_BYTES), "d": b"GIF89a", "e": None},
        **{"f": picture(9000, 9000)},
    }.items():
        run = fake_runs.run(tmp_path / name)
        entries += read([run if content is None else drawn(run, content)])
    found = shown.attention(entries)
    assert found[0] == {"png": base64.b64encode(small).decode()}
    assert found[4] is None
    faults = [each["fault"] for each in (found[1], found[2], found[3], found[5]) if each]
    for fault, words in zip(
        faults, ("left out: the pictures", "more than belong there", "no picture", "no picture"), strict=True
    ):
        assert words in fault
