"""One-line reasons for files that cannot be read."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqtrain.data.sources.packed import DAMAGED, PLAIN, Packed, packing_of
from seqtrain.errors import Unavailable, UserError, did_you_mean

SIGNATURES = {
    b"\x1f\x8b": "is compressed by gzip; unpack it with `gunzip`",
    b"PK\x03\x04": "is a zip archive; unpack it",
    b"BZh": "is compressed by bzip2; unpack it with `bunzip2`",
    b"\xfd7zXZ\x00": "is compressed by xz; unpack it with `unxz`",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; unpack it with `unzstd`",
    b"PAR1": "is a parquet file; name it .parquet, or set data.format=parquet",
    codecs.BOM_UTF32_LE: "is UTF-32; convert it with `iconv -f utf-32 -t utf-8`",
    codecs.BOM_UTF16_LE: "is UTF-16; convert it with `iconv -f utf-16 -t utf-8`",
    codecs.BOM_UTF16_BE: "is UTF-16; convert it with `iconv -f utf-16 -t utf-8`",
}
"""How files begin that are not UTF-8, and what to do with them; of two that fit, the longer stands first."""


def absent(path: Path, kind: str) -> str:
    """Return the reason that there is no such `kind` at a path, with a suggestion."""
    if os.path.lexists(path):  # there is something, but not what `is_file` and `is_dir` know
        return "is a broken link, a pipe or a device; give a regular file, which can be read more than once"
    if not path.parent.is_dir():
        return f"no such {kind} (there is no folder {path.parent})"
    # Names at the root of a system, such as /opt, are not suggested.
    at_root = path.absolute().parent == Path(path.absolute().anchor)
    beside = [] if at_root else [near.name for near in path.parent.iterdir() if near.is_file() or "folder" in kind]
    return f"no such {kind}{did_you_mean(path.name, beside)}"


def sniff(path: Path, packed: Packed = PLAIN) -> str | None:
    """Return what a file is by its first bytes if it is not UTF-8 text; otherwise None."""
    with readable(path, packed), packed.open_bytes(path) as file:
        head = file.read(4096)
    if packed.encoding == "utf-16":  # half of whose bytes are NUL; whether it is that, its reader tells
        return None
    is_binary = not _is_utf8(head)  # what is UTF-8 may begin as anything does: PK, say, is text as well
    for signature, words in SIGNATURES.items():
        if is_binary and head.startswith(signature):
            return words
    if 4 * head.count(0) > len(head):  # English in UTF-16 without a mark would pass for UTF-8
        return "has a NUL byte in every few, as UTF-16 has; convert it with `iconv -f utf-16le -t utf-8`"
    if (
        is_binary and 0 in head
    ):  # without a NUL it may be text in another encoding: the reader reports the first bad byte
        return "is binary; give a file of text"
    return None


def _is_utf8(head: bytes) -> bool:
    """Return True if these bytes begin a UTF-8 text; the last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(head)
    except UnicodeDecodeError:
        return False
    return True


def packed_as(path: Path, encoding: str) -> Packed:
    """Return a file's compression, found by its first bytes, with the encoding that is asked for."""
    with readable(path):
        return Packed(packing_of(path), encoding)


@contextmanager
def readable(path: Path, packed: Packed | None = None) -> Iterator[None]:
    """Raise in one line which file cannot be read, and why; `packed`: given if the user can choose its encoding."""
    try:
        yield
    except UnicodeDecodeError:
        raise UserError(_where_not_decoded(path, packed)) from None
    except DAMAGED as error:
        raise UserError(f"{path}: damaged or cut off ({error}): it cannot be unpacked; get it again") from None
    except ImportError as error:
        raise Unavailable(f"{path}: this Python cannot unpack it ({error}); unpack it first") from None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}; give a file that can be read") from None


def _where_not_decoded(path: Path, packed: Packed | None) -> str:
    """Return the message for a file that is not text in the chosen encoding."""
    if packed is None:
        return f"{_where_not_utf8(path, PLAIN)}; convert it, for example with `iconv -f latin1 -t utf-8`"
    if packed.encoding != "utf-8":
        return f"{path}: not {packed.encoding}; set data.encoding to the encoding that the file was written in"
    return f"{_where_not_utf8(path, packed)}; set data.encoding to what it is, for example data.encoding=latin-1"


def _where_not_utf8(path: Path, packed: Packed) -> str:
    """Return a message with the first byte that is not UTF-8; reads the file again, as readers lose its offset."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    offset = 0
    with packed.open_bytes(path) as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            pending = len(decoder.getstate()[0])  # bytes of a character that the block before has begun
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                offset += error.start - pending
                break
            offset += len(block)
        else:  # the file ends within a character
            offset -= len(decoder.getstate()[0])
        file.seek(offset)
        value = file.read(1)
    return f"{path}: not UTF-8 at byte {offset} (0x{value.hex()})"
