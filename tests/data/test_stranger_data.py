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
from seqtrain.data.sources.hub_files import check_below, check_metadata
from seqtrain.errors import UserError
from seqtrain.files.checked import check_png
from seqtrain.training.loggers.base import Record, RunLogger
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


@pytest.mark.parametrize("pattern", ["{}", "{}/*.txt", "{}/**/*.txt"])
def test_a_link_in_a_data_folder_leads_to_nothing_outside_it(data: Path, pattern: str) -> None:
    (data / "own.txt").symlink_to("one.txt")
    assert found(pattern.format(data)) == ["one.txt", "own.txt"]
    (data / "theirs.txt").symlink_to(data.parent / "secret.txt")
    with pytest.raises(UserError, match=r"theirs\.txt is a link that leads out"):
        found(pattern.format(data))


def test_a_link_that_the_user_names_is_followed(data: Path) -> None:
    (data.parent / "link").symlink_to(data)
    (data.parent / "file.txt").symlink_to(data / "one.txt")
    assert found(data.parent / "link") == ["one.txt"]
    assert found(data.parent / "file.txt") == ["file.txt"]


def test_a_pattern_over_folders_of_links_is_judged_by_where_it_begins(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    assert found("*.txt") == ["one.txt"]
    (data / "more" / "out").symlink_to(data.parent)
    with pytest.raises(UserError, match="leads out"):
        found("more/*/*.txt")


def test_a_snapshot_of_the_hub_s_cache_is_read_through_its_blobs(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "datasets--x" / "blobs", tmp_path / "datasets--x" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "0123").write_text("text")
    (snapshot / "one.txt").symlink_to("../../blobs/0123")
    assert found(snapshot) == ["one.txt"]
    check_below("x", snapshot, [str(snapshot / "one.txt")])


def test_a_local_data_set_of_the_hub_s_kind_is_its_own_files(data: Path) -> None:
    check_below("data", data, [str(data / "one.txt")])
    (data / "theirs.txt").symlink_to(data.parent / "secret.txt")
    with pytest.raises(UserError, match=r"theirs\.txt"):
        check_below("data", data, [str(data / "theirs.txt")])


@pytest.mark.parametrize("laid", ["pipe", "link", "large", "aliases", "number"])
def test_what_a_data_set_says_of_itself_is_judged_before_others_read_it(data: Path, laid: str) -> None:
    readme, info = data / "README.md", data / "dataset_info.json"
    if laid == "pipe":
        os.mkfifo(info)
    elif laid == "link":
        readme.symlink_to(data.parent / "secret.txt")
    elif laid == "large":
        info.touch()
        os.truncate(info, 1 << 33)
    else:
        readme.write_text(f"---\n{ALIASES if laid == 'aliases' else 'a: 1' + ':59' * 9999}\n---\n")
    with pytest.raises(UserError, match=r"README\.md|dataset_info\.json"):
        check_metadata("data", data)


def test_an_honest_data_set_may_say_of_itself_what_it_likes(data: Path) -> None:
    (data / "README.md").write_text("---\nconfigs: &all\n- config_name: a\nothers: *all\n---\n# Data\n---\n")
    check_metadata("data", data)


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


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_that_fills_memory_or_time_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"evil\.yaml cannot be read"):
        ConfFiles([config(tmp_path / "conf", CONFIGS[name])]).compose(["experiment=evil"])


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


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_judged_by_its_header(tmp_path: Path, name: str) -> None:
    (tmp_path / "curve.png").write_bytes(PICTURES[name])
    with pytest.raises(UserError, match=r"curve\.png: no picture that a run draws"):
        check_png(tmp_path / "curve.png")


class _Sink(RunLogger):
    """Takes what it is given."""

    def _metrics(self, metrics: Record, step: int) -> None: ...
    def _text(self, name: str, text: str, step: int) -> None: ...
    def _image(self, name: str, path: Path, step: int) -> None:
        raise AssertionError("it was unpacked")

    def _end(self, figures: dict) -> None: ...


def test_no_sink_unpacks_a_picture_that_was_not_judged(tmp_path: Path, capsys) -> None:
    (tmp_path / "curve.png").write_bytes(PICTURES["too wide"])
    run_logger = _Sink("test", tmp_path)
    run_logger.log_image("curve", tmp_path / "curve.png", 1)
    assert run_logger.broken
    assert "no picture that a run draws" in capsys.readouterr().err


def test_a_line_that_never_ends_is_one_line_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    with open("/dev/zero", "rb") as file, pytest.raises(UserError, match="a line of more than 1,048,576 bytes"):
        next(lines.from_file(file, Path("/dev/zero")))


def test_a_pipe_that_a_person_gives_is_read_as_it_comes(tmp_path: Path) -> None:
    end, begin = os.pipe()
    os.write(begin, b"one\ntwo")
    os.close(begin)
    with open(end, "rb") as file:
        arrived = [line.text for batch in lines.from_file(file, Path("/dev/fd/63")) for line in batch]
    assert arrived == ["one", "two"]
