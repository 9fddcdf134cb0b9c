"""What strangers do to a run directory, the command that opens it then, and what is answered: see test_hostile."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from seqtrain.config.options import Batching
from seqtrain.runs.checkpoint import FORMAT, NO_DIGEST, load, save, step_name
from seqtrain.runs.directory import Run
from tests.support import tiny
from tests.support.checkpoints import save_any

SECRET = "b79e-not-for-strangers"
STEPS = 4

RESUME = ("resume", "run", f"trainer.max_steps={STEPS + 2}")
EVALUATE = ("evaluate", "run")
PREDICT = ("predict", "run", "line", "--length", "3")
LAST = (*PREDICT, "--checkpoint", "last")
EMBED = ("embed", "run", "--input", "corpus.txt", "--output", "vectors.parquet")
SEARCH = ("search", "run", "line", "--corpus", "corpus.txt")
BEGIN = (
    *("train", "run_dir=new", "init_from=run", "trainer.max_steps=1"),
    *(word for word in tiny.OPTIONS if not word.startswith("tokenizer")),
)


@dataclass(frozen=True)
class Place:
    """Where an attack takes place: the run that a stranger made, and what is none of its business."""

    run: Path
    outside: Path

    @property
    def code(self) -> str:
        """A shell command that leaves a trace."""
        return f"touch {self.outside / 'executed'}"

    @property
    def newest(self) -> Path:
        return self.run / "checkpoints" / step_name(STEPS)

    @property
    def best(self) -> Path:
        return self.run / "checkpoints" / "best.ckpt"


Damage = Callable[[Place], None]


class Shell:
    """Runs a shell command when it is unpickled."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self) -> Any:
        return os.system, (self.code,)


class Eval(Shell):
    """Evaluates Python when it is unpickled."""

    def __reduce__(self) -> Any:
        return eval, (f"__import__('os').system({self.code!r})",)


# -- what a stranger does --------------------------------------------------------------------------------------


def config(**values: Any) -> Damage:
    """Sets values of config.yaml: `model__dim` is model.dim; a callable is given the place."""

    def damage(place: Place) -> None:
        path = place.run / "config.yaml"
        content = yaml.safe_load(path.read_text())
        for name, value in values.items():
            *parents, key = re.split("__(?=[^_]|_[a-z]+_$)", name)
            node = content
            for parent in parents:
                node[parent] = node.get(parent) or {}
                node = node[parent]
            node[key] = value(place) if callable(value) else value
        path.write_text(yaml.safe_dump(content))
        sign(place)

    return damage


def sign(place: Place) -> None:
    """Has the checkpoints say that they are of the config as it is now: else nothing but that would be refused."""
    for path in place.run.glob("checkpoints/*.ckpt"):
        content = load(path)
        content["seqtrain"]["run"] = Run(place.run).identity
        save(content, path)


def target(name: str, group: str = "model", **options: Any) -> Damage:
    """Names a target, with options in place of its own; those of data that lay out batches stay."""

    def damage(place: Place) -> None:
        former = yaml.safe_load((place.run / "config.yaml").read_text())[group]
        kept = {key: value for key, value in former.items() if key in Batching.__annotations__}
        config(**{group: {"_target_": name, **kept, **options}})(place)

    return damage


def text(name: str, content: str | bytes | Callable[[Place], str | bytes]) -> Damage:
    """Puts a file in place of one."""

    def damage(place: Place) -> None:
        made = content(place) if callable(content) else content
        path = place.run / name
        path.unlink(missing_ok=True)
        path.write_bytes(made.encode() if isinstance(made, str) else made)

    return damage


def link(name: str, to: str) -> Damage:
    """Puts a link in place of a file or folder; `to` is below the folder outside, or absolute."""

    def damage(place: Place) -> None:
        path = place.run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(place.outside / to)

    return damage


def pipe(name: str) -> Damage:
    """Puts a named pipe, which no one writes, in place of a file."""

    def damage(place: Place) -> None:
        (place.run / name).unlink(missing_ok=True)
        os.mkfifo(place.run / name)

    return damage


def folder(name: str) -> Damage:
    """Puts a folder in place of a file."""

    def damage(place: Place) -> None:
        (place.run / name).unlink(missing_ok=True)
        (place.run / name).mkdir()

    return damage


def saved(change: Callable[[dict[str, Any], Place], Any], *, newest: bool = False) -> Damage:
    """Saves a checkpoint again, changed: what `change` gives, or what it did."""

    def damage(place: Place) -> None:
        for path in place.run.glob("checkpoints/step-*.ckpt") if newest else [place.best]:
            content = load(path)
            changed = change(content, place)
            path.unlink()
            save_any(content if changed is None else changed, path)

    return damage


def legacy(place: Place) -> None:
    place.best.unlink()
    torch.save({"state_dict": Shell(place.code)}, place.best, _use_new_zipfile_serialization=False)


def deep(place: Place) -> None:
    """A sound file whose JSON is of lists in lists."""
    metadata = {"digest": NO_DIGEST, "format": FORMAT, "content": "[" * 100_000}
    text = json.dumps({"__metadata__": metadata}).encode()
    size = len(text).to_bytes(8, "little")
    digest = f"{zlib.crc32(size + text):08x}"
    place.best.unlink()
    place.best.write_bytes(size + text.replace(NO_DIGEST.encode(), digest.encode(), 1))


def absurd_step(place: Place) -> None:
    """The last checkpoint by its name and by what it says; no order of data has such a step."""
    for number, path in enumerate(place.run.glob("checkpoints/step-*.ckpt")):
        content = load(path)
        path.unlink()
        save(content | {"global_step": 10**20 + number}, path.with_name(step_name(10**20 + number)))


def weights(content: dict[str, Any], value: Any) -> None:
    content["state_dict"][next(iter(content["state_dict"]))] = value


TENSORBOARD = "seqtrain.training.loggers.tensorboard_logger.TensorBoardLogger"
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(f'*{below}' for _ in range(10))}]\n"
    for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)
NESTED = "[" * 100_000

ATTACKS: dict[str, tuple[Damage, tuple[str, ...], str]] = {
    # name: (what the stranger did, the command that opens it, what the line says)
    # -- checkpoints
    "pickle of a shell command": (saved(lambda _, place: Shell(place.code)), PREDICT, "refused"),
    "pickle among the callbacks": (
        saved(lambda content, place: content["callbacks"].update(x=Shell(place.code)), newest=True),
        RESUME,
        "all checkpoints are damaged",
    ),
    "pickle in place of a weight": (
        saved(lambda content, place: weights(content, Eval(place.code))),
        EMBED,
        "refused",
    ),
    "pickle for init_from": (saved(lambda _, place: Shell(place.code)), BEGIN, "refused"),
    "pickle of an older torch": (legacy, PREDICT, "damaged"),
    "weight of another shape": (saved(lambda content, _: weights(content, torch.zeros(3))), PREDICT, "weights"),
    "checkpoint that is a list": (saved(lambda *_: [1, 2]), PREDICT, "does not say which run"),
    "checkpoint nested too deep": (deep, PREDICT, "refused"),
    "optimizer without groups": (
        saved(lambda content, _: content["optimizer_states"][0].update(param_groups=[]), newest=True),
        RESUME,
        "this run cannot continue from it",
    ),
    "carried state that is text": (
        saved(lambda content, _: content["seqtrain"].update(carried="x"), newest=True),
        RESUME,
        "this run cannot continue from it",
    ),
    "checkpoint of a step that is none": (absurd_step, RESUME, "all checkpoints are damaged"),
    "checkpoint that is a folder": (folder("checkpoints/best.ckpt"), PREDICT, "a folder where a run has a file"),
    # -- targets
    "os.system": (target("os.system", command="id"), PREDICT, "--trust os"),
    "pickle.loads": (target("pickle.loads", group="data"), EVALUATE, "--trust pickle"),
    "torch.utils.collect_env.run": (target("torch.utils.collect_env.run", command="id"), BEGIN, "--trust torch"),
    "Lightning's lambda": (
        config(callbacks__x={"_target_": "pytorch_lightning.callbacks.LambdaCallback"}),
        RESUME,
        "--trust pytorch_lightning",
    ),
    "a module that ours imports": (target("seqtrain.models.recurrent.torch.load", f="x"), PREDICT, "no such class"),
    "a class of ours in another's place": (
        target("seqtrain.models.layers.front_ends.TokenEmbedding", vocab_size=9, dim=16, specials=3),
        PREDICT,
        "not a SequenceModel",
    ),
    "a source of another kind": (target("seqtrain.data.cache.Store", "data"), EVALUATE, "not a Source"),
    "a function among the callbacks": (
        config(callbacks__x={"_target_": "seqtrain.data.cache.Store"}),
        RESUME,
        "not a Callback",
    ),
    "model without its width": (target("seqtrain.models.recurrent.LSTM"), PREDICT, "model.dim: missing"),
    "target that is a map": (config(model___target_={"_target_": "os.system"}), PREDICT, "dotted name"),
    "target below another": (
        config(model__dim=lambda place: {"_target_": "os.system", "command": place.code}),
        PREDICT,
        "--trust os",
    ),
    "target in a list": (
        config(freeze=lambda place: [{"_target_": "os.system", "command": place.code}]),
        RESUME,
        "--trust os",
    ),
    "positional arguments": (config(model___args_=["id"]), PREDICT, "_args_"),
    "model left unmade": (config(model___partial_=True), PREDICT, "_partial_"),
    "what build hands over": (
        config(logger__x=lambda place: {"_target_": TENSORBOARD, "directory": str(place.outside)}),
        RESUME,
        "leave it out",
    ),
    # -- config.yaml
    "secret of the environment": (config(callbacks__samples={"prompt": "${oc.env:SECRET}"}), RESUME, "--trust oc.env"),
    "resolver named by a value": (config(model__dim="${oc.${run_dir}:SECRET}", run_dir="env"), PREDICT, "--trust"),
    "YAML tag": (
        text("config.yaml", lambda place: f'model: !!python/object/apply:os.system ["{place.code}"]'),
        PREDICT,
        "cannot be read",
    ),
    "YAML of aliases": (text("config.yaml", ALIASES), PREDICT, "alias"),
    "YAML nested too deep": (text("config.yaml", f"a: {NESTED}"), RESUME, "cannot be read"),
    "YAML with a date": (text("config.yaml", "seed: 2020-01-01\n"), PREDICT, "a date without quotes"),
    "config that is a list": (text("config.yaml", "[1, 2]"), EVALUATE, "holds no mapping"),
    "config of another tool": (text("config.yaml", "a: 1"), PREDICT, "the first of"),
    "config that is not UTF-8": (text("config.yaml", b"\xff\xfe\x00"), SEARCH, "cannot be read"),
    "config of gigabytes": (
        lambda place: os.truncate(place.run / "config.yaml", 1 << 33),
        PREDICT,
        "but no run writes more than",
    ),
    "model of absurd width": (config(model__dim=10**6), PREDICT, "model.dim=1000000: expected a whole number from"),
    "group that is a list": (config(data=[1]), EVALUATE, "data=[1]"),
    "message that steers the terminal": (config(seed="\x1b]0;x\x07\x1b[2J\u202e"), PREDICT, "seed="),
    "key that steers the terminal": (config(**{"\x1b[2J": 1}), PREDICT, "no such option"),
    "text that never ends": (config(data__path="/dev/zero"), RESUME, "data.path=/dev/zero"),
    # -- links, pipes, devices
    "tokenizer.json that is a link": (link("tokenizer.json", "precious"), PREDICT, "a link that leads out"),
    "lock that is a link": (link(".lock", "new"), RESUME, "a link that leads out"),
    "samples that are a link": (link("samples", "folder"), RESUME, "a link that leads out"),
    "a checkpoint that is a link": (
        link("checkpoints/step-00000099.ckpt", "precious"),
        RESUME,
        "a link that leads out",
    ),
    "a run to begin from with a link": (link("tokenizer.json", "precious"), BEGIN, "a link that leads out"),
    "a link that goes round": (link("wandb_id", "../run/wandb_id"), PREDICT, "a link that leads out"),
    "lock that is a pipe": (pipe(".lock"), RESUME, "neither a file nor a folder"),
    "tokenizer.json that is a pipe": (pipe("tokenizer.json"), PREDICT, "neither a file nor a folder"),
    "metrics.jsonl that is a folder": (folder("metrics.jsonl"), RESUME, "a folder where a run has a file"),
    # -- tokenizers, labels, records
    "tokenizer nested too deep": (text("tokenizer.json", NESTED), PREDICT, "not a tokenizer"),
    "tokenizer of one id twice": (
        lambda place: vocab_size(place, lambda ids: dict.fromkeys(ids, 0)),
        PREDICT,
        "ids are not 0..V-1",
    ),
    "tokenizer of a larger vocabulary": (
        lambda place: vocab_size(place, lambda ids: ids | {chr(0x4E00 + n): len(ids) + n for n in range(9999)}),
        PREDICT,
        "tokenizer.json",
    ),
    "tokens that are no characters": (
        lambda place: vocab_size(place, lambda ids: {f"{token}{token}": index for token, index in ids.items()}),
        PREDICT,
        "a token is not one character",
    ),
    "summary that is a list": (text("summary.json", "[]"), RESUME, "summary.json"),
    "summary of other kinds": (text("summary.json", '{"hashes": [1]}'), EVALUATE, "hashes"),
    "trust that the run gives itself": (
        lambda place: trust_itself(place),
        PREDICT,
        "--trust os",
    ),
}


def vocab_size(place: Place, change: Callable[[dict[str, int]], dict[str, int]]) -> None:
    """Changes the vocabulary of tokenizer.json."""
    path = place.run / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"] = change(content["model"]["vocab"])
    path.write_text(json.dumps(content))


def trust_itself(place: Place) -> None:
    target("os.system", command=place.code)(place)
    text("summary.json", '{"trust": ["os"]}')(place)
