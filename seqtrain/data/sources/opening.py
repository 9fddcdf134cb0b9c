"""Open files of any compression and encoding as bytes or text, with one-line errors."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

from seqtrain.errors import Unavailable, UserError, did_you_mean

Packing = Literal["none", "gzip", "bzip2", "xz"]
Encoding = Literal[
    "utf-8",
    "latin-1",
    "cp1252",
    "cp1251",
    "koi8-r",
    "gb18030",
    "big5",
    "shift_jis",
    "euc-jp",
    "euc-kr",
    "utf-16",
]
ENDINGS: dict[str, Packing] = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}
PACKED: dict[bytes, Packing] = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}


DAMAGED = (EOFError, zlib.error, lzma.LZMAError)  # raised, besides OSError, for damaged compressed files


class Packed(NamedTuple):
    """Compression and encoding of a file."""

    packing: Packing = "none"
    encoding: str = "utf-8"

    def open_bytes(self, path: Path) -> IO[bytes]:
        """Open the file's bytes; they are decompressed while they are read."""
        openers = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open, "none": open}
        return cast(IO[bytes], openers[self.packing](path, "rb"))

    def open_text(self, path: Path, newline: str | None = None) -> IO[str]:
        """Open the file's text without a byte order mark. `newline`: as in `open`."""
        # `utf-8-sig` drops the mark; other encodings have none, or drop it themselves.
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        return io.TextIOWrapper(self.open_bytes(path), encoding=encoding, newline=newline)


PLAIN = Packed()


def unpacked_name(path: Path) -> Path:
    """Return the name without the extension of a compressed file: `a.tsv` for `a.tsv.gz`."""
    return path.with_suffix("") if path.suffix.lower() in ENDINGS else path


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
"""First bytes of files that are not UTF-8, and what to do with such files; a longer one precedes its prefix."""


def absent(path: Path, kind: str) -> str:
    """Return the message for a missing file or folder, with a suggestion; `kind`: its noun."""
    if os.path.lexists(path):  # something exists that is neither a file nor a folder
        return "is a broken link, a pipe or a device; give a regular file, which can be read more than once"
    if not path.parent.is_dir():
        return f"no such {kind} (there is no folder {path.parent})"
    beside = [near.name for near in path.parent.iterdir() if near.is_file() or "folder" in kind]
    return f"no such {kind}{did_you_mean(path.name, beside)}"


def sniff(path: Path, packed: Packed = PLAIN) -> str | None:
    """Return a description of a file that is not UTF-8 text, from its first bytes; else None."""
    with readable(path, packed), packed.open_bytes(path) as file:
        head = file.read(4096)
    if packed.encoding == "utf-16":  # about half of the bytes are NUL; the reader reports errors
        return None
    is_binary = not _is_utf8(head)  # UTF-8 text may begin with a signature, such as PK
    for signature, words in SIGNATURES.items():
        if is_binary and head.startswith(signature):
            return words
    if 4 * head.count(0) > len(head):  # English in UTF-16 without a byte order mark is valid UTF-8
        return "has many NUL bytes, like UTF-16; convert it with `iconv -f utf-16le -t utf-8`"
    if (
        is_binary and 0 in head
    ):  # without a NUL it may be text in another encoding: the reader reports the first bad byte
        return "is binary; give a text file"
    return None


def _is_utf8(head: bytes) -> bool:
    """Return True if these bytes are the beginning of UTF-8 text; the last character may be incomplete."""
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(head)
    except UnicodeDecodeError:
        return False
    return True


def packed_as(path: Path, encoding: str) -> Packed:
    """Return a file's compression, detected from its first bytes, and the given encoding."""
    # Not by extension: a download that a browser has unpacked often keeps its `.gz`.
    with readable(path), open(path, "rb") as file:
        head = file.read(8)
    for signature, packing in PACKED.items():
        if head.startswith(signature):
            return Packed(packing, encoding)
    return Packed("none", encoding)


@contextmanager
def readable(path: Path, packed: Packed | None = None) -> Iterator[None]:
    """Convert read errors into one line with file and reason; `packed`: given if the user can set the encoding."""
    try:
        yield
    except UnicodeDecodeError as error:
        encoding, remedy = "UTF-8", "convert it, for example with `iconv -f latin1 -t utf-8`"
        if packed is not None:
            encoding = packed.encoding.replace("utf-8", "UTF-8")
            remedy = "set data.encoding to the encoding of the file, for example data.encoding=latin-1"
        byte = error.object[error.start : error.start + 1].hex()
        raise UserError(f"{path}: not {encoding} (byte 0x{byte}: {error.reason}); {remedy}") from None
    except DAMAGED as error:
        raise UserError(f"{path}: cannot be decompressed ({error}), damaged or truncated; download it again") from None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}; give a file that can be read") from None
