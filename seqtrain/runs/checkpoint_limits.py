"""Limits of a checkpoint file, checked before it is unpickled: names, sizes and nesting; code is refused."""

from __future__ import annotations

import os
import pickle
import pickletools
import re
import zipfile
from pathlib import Path
from typing import IO, Any

ENTRY = re.compile(r"[^/\\]+/(data\.pkl|version|byteorder|data/[0-9]+|\.[a-z_]+|\.data/[a-z_]+)")  # what torch writes
MAX_DIRECTORY_BYTES = 1 << 25  # of the zip file's list of entries
MAX_PICKLE_BYTES = 1 << 25
MAX_OPCODES = 1 << 19  # some 30 for each tensor
MAX_DEPTH = 64
MAX_OBJECTS = 1 << 23  # that the containers would hold if each reference were a copy
# Names in seqtrain's checkpoints; torch's own list is longer, and parts of it take unbounded memory.
GLOBALS = re.compile(
    r"collections OrderedDict|builtins set|torch Size|torch device|torch\._utils _rebuild_(tensor_v2|parameter)"
    r"|torch \w+Storage|torch\.storage UntypedStorage|torch (u?int\d+|b?float\d+|bool|complex\d+)"
)

FILLS = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD")  # instructions that fill what is there
END, END64, LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"


class Excess(ValueError):
    """A file that is larger, deeper or of another form than any checkpoint."""


def check(path: Path) -> None:
    """Raise Excess or UnpicklingError unless the file can be unpickled in bounded time and memory and runs no code.

    It reads the list of entries and the pickle, but no tensor.
    """
    with open(path, "rb") as file:
        if _directory_bytes(file) > MAX_DIRECTORY_BYTES:
            raise Excess("it lists more entries than any checkpoint has")
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            roots = {name.partition("/")[0] for name in names}
            if len(set(names)) < len(names) or len(roots) != 1 or not all(map(ENTRY.fullmatch, names)):
                raise Excess("it has entries that no checkpoint has, or one twice")
            pickled = archive.getinfo(f"{roots.pop()}/data.pkl")
            if pickled.file_size > MAX_PICKLE_BYTES:
                raise Excess(f"its list of contents has {pickled.file_size:,} bytes, more than any checkpoint's")
            _check_pickle(archive.read(pickled))


def _directory_bytes(file: IO[bytes]) -> int:
    """Return the size in bytes of a zip file's list of entries, from the record at its end; 0 if there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - (1 << 16) - 64))
    tail = file.read()
    place = tail.rfind(END)
    if place < 0:
        return 0
    told = int.from_bytes(tail[place + 12 : place + 16], "little")
    if tail[place - 20 : place - 16] != LOCATOR64:
        return told
    file.seek(int.from_bytes(tail[place - 12 : place - 4], "little"))
    record = file.read(48)
    return int.from_bytes(record[40:48], "little") if record[:4] == END64 else told


def _check_pickle(pickled: bytes) -> None:
    """Simulate the pickle's instructions by depth and size alone, without creating objects; raise if beyond a limit.

    A reference counts as a copy of its target: hashing or copying visits it each time it is named.
    """
    stack: list[tuple[int, int]] = []  # depth and number of objects of each value
    marks: list[int] = []
    memo: dict[Any, tuple[int, int]] = {}
    for number, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if number == MAX_OPCODES:
            raise Excess("it holds more objects than any checkpoint")
        if opcode.name in ("GLOBAL", "STACK_GLOBAL", "INST", "OBJ") and not GLOBALS.fullmatch(str(argument)):
            raise pickle.UnpicklingError(f"it names {argument}")
        if opcode.name == "MARK":
            marks.append(len(stack))
            continue
        if "PUT" in opcode.name or opcode.name == "MEMOIZE":
            memo[len(memo) if argument is None else argument] = stack[-1]
            continue
        if "GET" in opcode.name:
            stack.append(memo[argument])
            continue
        taken = _taken(opcode, stack, marks)
        into, held = (taken[0], taken[1:]) if opcode.name in FILLS else ((1, 1), taken)
        depth = max([into[0], *(1 + depth for depth, _ in held)])
        value = (depth, into[1] + sum(size for _, size in held))
        if value[0] > MAX_DEPTH or value[1] > MAX_OBJECTS:
            raise Excess("it is nested deeper, or refers to itself more often, than any checkpoint")
        stack += [value] * len(opcode.stack_after)


def _taken(opcode: pickletools.OpcodeInfo, stack: list[tuple[int, int]], marks: list[int]) -> list[tuple[int, int]]:
    """Remove the operands of an instruction from the stack and return them."""
    before = opcode.stack_before
    marked = pickletools.markobject in before
    below = before.index(pickletools.markobject) if marked else len(before)
    start = (marks.pop() if marked else len(stack)) - below
    if start < 0:
        raise Excess("its instructions take what is not there")
    taken = stack[start:]
    del stack[start:]
    return taken
