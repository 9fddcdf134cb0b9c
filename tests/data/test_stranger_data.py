"""Data, configurations and pictures of a stranger lead nowhere, hang nothing and fill no memory: each is one line."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import pytest

from seqtrain.cli import lines
from seqtrain.config.conf_files import ConfFiles
from seqtrain.data.sources import files
from seqtrain.data.sources.columns import columns_of
from seqtrain.data.sources.hub_files import check_below
from seqtrain.files.checked import check_png
from seqtrain.training.loggers.base import Record, RunLogger
from tests.support.refused import refusal
from tests.support.untrusted_runs import ALIASES

pytestmark = pytest.mark.timeout(30)
TEXT = columns_of("text", None, None, None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of texts, beside a file that is none of it."""
    (tmp_path / "data" / "more").mkdir(parents=True)
    (tmp_path / "data" / "one.txt").write_text("one")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "data"


def found(path: Path | str) -> list[str]:
    return [file.path.name for file in files.find("data.path", str(path), "auto", TEXT)]


def test_a_link_in_a_data_folder_leads_to_nothing_outside_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = (str(data), f"{data}/*.txt", f"{data}/**/*.txt")
    (data / "own.txt").symlink_to("one.txt")
    for pattern in patterns:
        assert found(pattern) == ["one.txt", "own.txt"], pattern
    (data / "theirs.txt").symlink_to(data.parent / "secret.txt")
    for pattern in patterns:
        assert "theirs.txt is a link that leads out" in refusal(found, pattern), pattern
    check_below("data", data, [str(data / "one.txt")])
    assert "theirs.txt" in refusal(check_below, "data", data, [str(data / "theirs.txt")])
    (data / "more" / "out").symlink_to(data.parent)
    monkeypatch.chdir(data)  # a pattern over folders of links is judged by where it begins
    assert "leads out" in refusal(found, "more/*/*.txt")


def test_a_link_that_the_user_names_is_followed(data: Path) -> None:
    (data.parent / "link").symlink_to(data)
    (data.parent / "file.txt").symlink_to(data / "one.txt")
    assert found(data.parent / "link") == ["one.txt"]
    assert found(data.parent / "file.txt") == ["file.txt"]


def test_a_snapshot_of_the_hub_s_cache_is_read_through_its_blobs(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "datasets--x" / "blobs", tmp_path / "datasets--x" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "0123").write_text("text")
    (snapshot / "one.txt").symlink_to("../../blobs/0123")
    assert found(snapshot) == ["one.txt"]
    check_below("x", snapshot, [str(snapshot / "one.txt")])


CONFIGS = {
    "aliases": ALIASES,
    "nested too deep": f"a: {'[' * 100_000}",
    "number with a colon": f"seed: 1{':59' * 100_000}",
    "tag that trips the reader": 'seed: !!int ""',
    "more than a config has": "a: [" + "1," * 300_000 + "1]",
}


def config(folder: Path, text: str) -> Path:
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "evil.yaml").write_text(f"# @package _global_\n{text}\n")
    return folder


def test_a_configuration_that_fills_memory_or_time_is_one_line(tmp_path: Path) -> None:
    for name, text in CONFIGS.items():
        folder = config(tmp_path / name, text)
        assert "evil.yaml cannot be read" in refusal(ConfFiles([folder]).compose, ["experiment=evil"]), name


def test_a_configuration_of_a_person_may_hold_aliases_and_plain_tags(tmp_path: Path) -> None:
    folder = config(tmp_path / "conf", "x: &x {lr: !!float 1}\ny: *x\nz: {<<: *x, a: 1}")
    composed = ConfFiles([folder]).compose(["experiment=evil"])
    assert (composed.y.lr, composed.z.lr, composed.z.a) == (1.0, 1.0, 1)


def picture(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def header(width: int, height: int) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)


PICTURES = {
    "too wide": picture(header(100_000, 100_000), (b"IDAT", b"")),
    "of two headers": picture(header(1, 1), header(100_000, 100_000), (b"IDAT", b"")),
    "without a header": picture((b"IDAT", b"")),
    "without data": picture(header(1, 1)),
    "no picture": b"<html>",
}


class _Sink(RunLogger):
    """Takes what it is given."""

    def _metrics(self, metrics: Record, step: int) -> None: ...
    def _text(self, name: str, text: str, step: int) -> None: ...
    def _image(self, name: str, path: Path, step: int) -> None:
        raise AssertionError("it was unpacked")

    def _end(self, figures: dict) -> None: ...


def test_a_picture_is_judged_by_its_header_and_no_logger_unpacks_one_that_was_not(tmp_path: Path, capsys) -> None:
    path = tmp_path / "curve.png"
    for name, content in PICTURES.items():
        path.write_bytes(content)
        assert "curve.png: no picture that a run draws" in refusal(check_png, path), name
    path.write_bytes(PICTURES["too wide"])
    run_logger = _Sink("test", tmp_path)
    run_logger.log_image("curve", path, 1)
    assert run_logger.broken
    assert "no picture that a run draws" in capsys.readouterr().err


def test_a_line_that_never_ends_is_one_line_of_words_and_a_pipe_is_read_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    with open("/dev/zero", "rb") as file:
        assert "a line of more than 1,048,576 bytes" in refusal(next, lines.from_file(file, Path("/dev/zero")))
    end, begin = os.pipe()
    os.write(begin, b"one\ntwo")
    os.close(begin)
    with open(end, "rb") as file:
        arrived = [line.text for batch in lines.from_file(file, Path("/dev/fd/63")) for line in batch]
    assert arrived == ["one", "two"]
