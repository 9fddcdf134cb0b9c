"""What is done to a run directory: files, their values and their kinds, and the tensors of its checkpoints."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *(
        "",
        "x",
        "nan",
        "../..",
        "/etc/passwd",
        "\x1b[31m",
        "a\nb",
        "\u202e",
        "😀",
        "x" * 100_000,
        "${oc.env:HOME}",
        "os.system",
    ),
    *(
        [],
        {},
        [1, 2],
        [[[]]],
        {"a": 1},
        {"_target_": "os.system"},
        [None] * 1000,
        "2020-01-01",
        "seqtrain.models.gpt.GPT",
    ),
)
BYTES = (
    *(
        b"",
        b"\n",
        b"{}",
        b"[]",
        b"null",
        b"0",
        b'"text"',
        b"{",
        b"[" * 100_000,
        b"\0" * 4096,
        b"\xff\xfe",
        b"a: [" * 5000,
    ),
    *(
        b"NaN",
        b"1e999",
        b"9" * 20_000,
        b'{"a":' * 20_000,
        b"- " * 20_000,
        b"PK\x03\x04",
        b"PK\x05\x06" + b"\0" * 18,
        b"a: &a [*a]",
    ),
    *(b'{"step": 1e400}', b"!!python/object/apply:os.system [id]", b"\xef\xbb\xbf{}", b"? " * 5000),
)


@dataclass(frozen=True)
class Damage:
    """Something done to a run directory; what it draws, it draws from its own seed."""

    name: str
    do: Callable[[Path, random.Random], str]
    seed: int

    def __call__(self, run: Path) -> str:
        """Does it; says what was done."""
        return f"{self.name} {self.do(run, random.Random(self.seed))}"

    def __repr__(self) -> str:
        return f"{self.name}({self.seed})"


# -- files -------------------------------------------------------------------------------------------------------


def _file(run: Path, chance: random.Random) -> Path:
    """One of its files, but for what an earlier damage has made too large to be read."""
    files = (path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
    return chance.choice(sorted(path for path in files if path.stat().st_size < 1 << 24))


def _delete(run: Path, chance: random.Random) -> str:
    path = chance.choice(sorted(run.rglob("*")))
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return str(path.name)


def _truncate(run: Path, chance: random.Random) -> str:
    path = _file(run, chance)
    size = chance.choice([int(path.stat().st_size * chance.random()), path.stat().st_size - 1, 0, 1 << 42])
    os.truncate(path, max(size, 0))
    return f"{path.name} to {size}"


def _replace(run: Path, chance: random.Random) -> str:
    path, content = _file(run, chance), chance.choice(BYTES)
    path.write_bytes(content)
    return f"{path.name} by {content[:20]!r}"


def _flip(run: Path, chance: random.Random) -> str:
    path = _file(run, chance)
    content = bytearray(path.read_bytes())
    places = [chance.randrange(len(content)) for _ in range(chance.choice([1, 1, 8, 64]))] if content else []
    for place in places:
        content[place] ^= chance.randrange(1, 256)
    path.write_bytes(content)
    return f"{path.name} at {places[:3]}"


def _double(run: Path, chance: random.Random) -> str:
    path = _file(run, chance)
    path.write_bytes(path.read_bytes() * 2)
    return path.name


def _copy(run: Path, chance: random.Random) -> str:
    path = _file(run, chance)
    others = [
        "step-00000099.ckpt",
        "step-99999999.ckpt",
        "best-00000002.ckpt",
        "labels.json",
        "target_tokenizer.json",
        "x",
    ]
    others += [
        "config.json",
        "wandb_id",
        "mlflow_id",
        "sweep.yaml",
        "index.json",
        "summary.json",
        "events.out.tfevents.1",
    ]
    to = path.with_name(chance.choice(others))
    shutil.copyfile(path, to)
    return f"{path.name} to {to.name}"


def _swap(run: Path, chance: random.Random) -> str:
    one, other = _file(run, chance), _file(run, chance)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return f"{one.name} and {other.name}"


def _other_kind(run: Path, chance: random.Random) -> str:
    """A link, a pipe, a socket or a folder in the place of something."""
    path = chance.choice(sorted(run.rglob("*")))
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    outside = os.path.relpath(run.parent / "outside", path.parent)
    kind = chance.choice(
        ["pipe", "socket", "folder", "link out", "link to a file", "loop", "link to /dev/zero", "link home"]
    )
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        former = Path.cwd()
        os.chdir(path.parent)  # a socket's path may have a hundred letters
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        finally:
            os.chdir(former)
    elif kind == "folder":
        path.mkdir()
    else:
        to = {"link out": outside, "link to a file": f"{outside}/precious", "loop": path.name, "link home": "."}
        path.symlink_to(to.get(kind, "/dev/zero"))
    return f"{path.name} is a {kind}"


# -- values ------------------------------------------------------------------------------------------------------


def changed(tree: Any, chance: random.Random, odd: Callable[[Any], Any]) -> str:
    """Changes, takes out, renames or adds one thing somewhere in a tree of maps and lists; says what."""
    place, where = tree, ""
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return f"{where} left empty"
        key = chance.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.2:
            break
        place, where = place[key], f"{where}.{key}"
    what = chance.choice(["set", "set", "set", "set", "take out", "rename", "add"])
    if what == "take out":
        del place[key]
    elif what == "rename" and isinstance(place, dict):
        place[f"{key}x" if isinstance(key, str) else key + 1] = place.pop(key)
    elif what == "add" and isinstance(place, list):
        place.append(odd(place[key]))
    else:
        place[key] = odd(place[key])
        what = f"set to {str(place[key])[:40]!r}"
    return f"{where}.{key} {what}"


def _value(run: Path, chance: random.Random) -> str:
    """A value of one of the files that hold some."""
    paths = [
        path
        for path in run.rglob("*")
        if path.suffix in (".yaml", ".json") and path.is_file() and path.stat().st_size < 1 << 24
    ]
    path = chance.choice(sorted(paths))
    content = yaml.safe_load(path.read_text()) if path.suffix == ".yaml" else json.loads(path.read_text())
    what = changed(content, chance, lambda value: chance.choice(ODD))
    path.write_text(yaml.safe_dump(content) if path.suffix == ".yaml" else json.dumps(content))
    return f"{path.name}: {what}"


def _record(run: Path, chance: random.Random) -> str:
    """A record of metrics.jsonl, or its place among the others."""
    path = chance.choice(sorted(run.rglob("metrics.jsonl")))
    lines = path.read_text().splitlines()
    if not lines:
        return "nothing"
    number = chance.randrange(len(lines))
    record = json.loads(lines[number])
    what = chance.choice(["value", "value", "value", "shuffle", "resumed", "twice", "other"])
    if what == "value" and record:
        what = changed(record, chance, lambda value: chance.choice(ODD))
        lines[number] = json.dumps(record)
    elif what == "shuffle":
        chance.shuffle(lines)
    elif what == "resumed":
        lines.insert(number, json.dumps({"resumed_from": chance.choice([0, -1, 2, 10**20, True])}))
    elif what == "other":
        lines[number] = chance.choice(BYTES).decode("latin-1")
    else:
        lines += lines
    path.write_text("".join(f"{line}\n" for line in lines))
    return f"line {number}: {what[:60]}"


KINDS: dict[str, Callable[[Path, random.Random], str]] = {
    **{"delete": _delete, "truncate": _truncate, "replace": _replace, "flip": _flip, "double": _double},
    **{"copy": _copy, "swap": _swap, "other kind": _other_kind, "value": _value, "record": _record},
}


def of_files() -> st.SearchStrategy[Damage]:
    """Damage to files and their values, values more often."""
    kinds = st.sampled_from([*KINDS, "value", "value", "other kind"])
    return st.builds(lambda name, seed: Damage(name, KINDS[name], seed), kinds, st.integers(0, 2**32))
