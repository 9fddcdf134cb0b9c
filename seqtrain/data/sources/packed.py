"""Files that may be compressed and in any encoding, opened as bytes or text."""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast, get_args

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
PACKINGS: tuple[Packing, ...] = get_args(Packing)
ENDINGS: dict[str, Packing] = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}
SIGNATURES: dict[bytes, Packing] = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}


def _damaged() -> tuple[type[Exception], ...]:
    """Return the exceptions, beside OSError, that readers of compressed files raise."""
    found: list[type[Exception]] = [EOFError, zlib.error]
    with suppress(ImportError):  # not every Python was built with it
        import lzma

        found.append(lzma.LZMAError)
    return tuple(found)


DAMAGED = _damaged()


class Packed(NamedTuple):
    """Compression and encoding of a file."""

    packing: Packing = "none"
    encoding: str = "utf-8"

    def open_bytes(self, path: Path) -> IO[bytes]:
        """Open the file's bytes, uncompressed as they are read."""
        # Imported where they are needed: a Python that was built without one of them reads all other files.
        if self.packing == "gzip":
            return cast(IO[bytes], gzip.open(path, "rb"))
        if self.packing == "bzip2":
            import bz2

            return cast(IO[bytes], bz2.open(path, "rb"))
        if self.packing == "xz":
            import lzma

            return cast(IO[bytes], lzma.open(path, "rb"))
        return open(path, "rb")

    def open_text(self, path: Path, newline: str | None = None) -> IO[str]:
        """Open the file's text; a byte order mark is dropped. `newline` is that of `open`."""
        # The name with `sig` drops the mark; other encodings have none, or take it away themselves.
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        return io.TextIOWrapper(self.open_bytes(path), encoding=encoding, newline=newline)


PLAIN = Packed()


def packing_of(path: Path) -> Packing:
    """Return a file's compression by its first bytes, because its name may be wrong."""
    # A download that a browser has unpacked often keeps its `.gz`.
    with open(path, "rb") as file:
        head = file.read(8)
    for signature, packing in SIGNATURES.items():
        if head.startswith(signature):
            return packing
    return "none"


def unpacked_name(path: Path) -> Path:
    """Return the name without the extension of a compressed file: `a.tsv` for `a.tsv.gz`."""
    return path.with_suffix("") if path.suffix.lower() in ENDINGS else path
