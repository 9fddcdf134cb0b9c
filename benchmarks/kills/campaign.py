"""Kills runs and sweeps, has them requeued until they are done, and compares them with their uninterrupted twins."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.kills import hook
from benchmarks.kills.kinds import BASE, BEGUN_FROM, KINDS, Kind, of
from seqtrain.distributed.fork_server import Child, ForkServer
from seqtrain.runs import resume_check
from seqtrain.runs.checkpoint import load
from seqtrain.runs.directory import Run, stands
from seqtrain.sweeps.folder import ENDED, Sweep

PATIENCE = 600.0  # seconds that a command may take
BY_CLOCK = 0.25  # share of the kills that come at a random time instead of a file event
ALONE = 0.3  # share of the kills of several processes that hit one of them
MOST_KILLS = 3  # of one run
MOST_COMMANDS = 6  # that a requeued job may take after the last kill
CLOCKS = ("seconds", "tokens_per_second", "command", "data_seconds", "validation_seconds")
"""Entries of summary.json that may differ between equal runs."""
VOCABULARIES = ("tokenizer.json", "target_tokenizer.json", "labels.json")


@dataclass
class Story:
    """What was done to one run, and what became of it."""

    kills: list[str] = field(default_factory=list)  # where each hit
    said: list[str] = field(default_factory=list)  # the errors of commands that ended by themselves
    verdict: str = "equal"  # or: refused, failed, not equal
    reason: str = ""


class Campaign:
    """Twins and killed runs of every kind in one folder; thread-safe."""

    def __init__(self, server: ForkServer, folder: Path, env: dict[str, str], seed: int) -> None:
        self.server, self.folder, self.env, self.seed = server, folder, env, seed
        self._twins: dict[str, tuple[int, float]] = {}
        self._locks = {name: threading.Lock() for name in (*KINDS, BASE)}

    def story(self, kind: Kind, number: int) -> Story:
        """Kills the run `number` of a kind one to three times, as the seed says, and compares it with the twin.

        Its first kill visits the file events of the kind one after another, in a shuffled order.
        """
        events, seconds = self.twin(kind)
        chance = random.Random(f"{self.seed} {kind.name} {number}")
        order = random.Random(f"{self.seed} {kind.name}").sample(range(1, events + 1), events)
        name = _place(kind, number)
        story, run = Story(), self.folder / name
        for kill in range(chance.randint(1, MOST_KILLS)):
            at = order[number % events] if kill == 0 else chance.randint(1, events)
            by_clock, moment = chance.random() < BY_CLOCK, chance.random() * seconds
            alone = kind.several and not kind.is_search and chance.random() < ALONE
            words = kind.resume(name) if kind.begun(run) else kind.train(name)
            child, log = self._start(words, run, at=0 if by_clock else at, whom="one" if alone else "all")
            hit = self._killed(child, log, moment if by_clock else None)
            story.said += _errors(child)
            code = child.poll()
            child.close()
            if not hit:
                break
            story.kills.append(hit if code == -9 else f"{hit}, one process")
        self._requeue(kind, name, story)
        if story.verdict == "equal":
            story.reason = self._difference(kind, run) or ""
            story.verdict = "not equal" if story.reason else "equal"
        if story.verdict == "equal":
            shutil.rmtree(run.parent)
        return story

    def twin(self, kind: Kind) -> tuple[int, float]:
        """Trains the uninterrupted twin of a kind, once; how many file events it has and how many seconds it takes."""
        with self._locks[kind.name]:
            if kind.name not in self._twins:
                if BEGUN_FROM in kind.words:
                    self.twin(Kind(BASE, of("sentiment", "trainer.max_steps=5")))
                name = _place(kind, "twin")
                child, log = self._start(kind.train(name), self.folder / name, at=0)
                code = child.wait(PATIENCE)
                assert code == 0, f"the twin of {kind.name} ended with {code}: {child.stderr}"
                self._twins[kind.name] = hook.read_log(log)[0], child.result().seconds
                child.close()
        return self._twins[kind.name]

    def _start(self, words: list[str], run: Path, *, at: int, whom: str = "all") -> tuple[Child, Path]:
        """A command that dies at an event in the folder that holds the run, where it is made under another name."""
        run.parent.mkdir(exist_ok=True)
        log = run.parent.with_suffix(".log")
        log.write_bytes(b"\0" * hook.SIZE)
        plan = {hook.LOG: str(log), hook.BELOW: str(run.parent), hook.AT: str(at), hook.WHOM: whom}
        return self.server.popen(words, cwd=self.folder, env=self.env | plan), log

    def _killed(self, child: Child, log: Path, seconds: float | None) -> str:
        """Waits for the end of a command, or kills it after so many seconds; where it was hit, empty if nowhere."""
        if seconds is not None:
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(PATIENCE)
            return f"by the clock after {seconds:.2f} s" if child.poll() == -9 else ""
        try:
            child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill_group()
            child.wait()
        count, event = hook.read_log(log)
        return f"before event {count}: {event}" if event else ""

    def _requeue(self, kind: Kind, name: str, story: Story) -> None:
        """What a job script does that is begun again and again: resume what is there, or train, until it is done."""
        run = self.folder / name
        for _ in range(MOST_COMMANDS):
            if kind.begun(run) and _is_done(kind, run):
                return
            code = 2
            for words in (kind.resume(name), kind.train(name))[0 if kind.begun(run) else 1 :]:
                child, _ = self._start(words, run, at=0)
                try:
                    code = child.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    child.kill_group()
                    code = -9
                story.said += _errors(child)
                if code < 0 or (code == 1 and "Traceback" in child.stderr):
                    story.said.append(child.stderr[-1500:])
                child.close()
                if code != 2:
                    break
            if code == 2 and not (kind.begun(run) and _is_done(kind, run)):
                story.verdict, story.reason = "refused", " | ".join(story.said[-2:])
                return
        if not _is_done(kind, run):
            story.verdict, story.reason = "failed", " | ".join(story.said[-2:])

    def _difference(self, kind: Kind, run: Path) -> str | None:
        twin = self.folder / _place(kind, "twin")
        if left := sorted(path.name for path in run.parent.iterdir() if path != run):
            return f"left beside it: {', '.join(left)}"
        try:
            return sweep_difference(twin, run) if kind.is_sweep else run_difference(twin, run)
        except Exception as error:  # what cannot be compared is not equal
            return f"{type(error).__name__}: {error}"


def run_difference(one: Path, other: Path) -> str | None:
    """Where two finished runs differ in anything but clocks: bits, records, summary, vocabularies, names of files."""
    found = resume_check.difference(one, other) or resume_check.differing(
        _summary(one), _summary(other), "summary.json"
    )
    for name in VOCABULARIES:
        contents = [path.read_bytes() if path.exists() else None for path in (one / name, other / name)]
        found = found or (None if contents[0] == contents[1] else f"{name} differs")
    for path in sorted((one / "checkpoints").glob("best-*.ckpt")):
        left, right = (load(folder / path.name)["state_dict"] for folder in (path.parent, other / "checkpoints"))
        found = found or resume_check.differing(left, right, path.name)
    return found or resume_check.differing(_names(one), _names(other), "files")


def sweep_difference(one: Path, other: Path) -> str | None:
    """Where two sweeps differ: trials, how they ended and why, what the runs came to, what the study knows."""
    left, right = ([trial.row() for trial in Sweep.open(sweep).trials()] for sweep in (one, other))
    found = resume_check.differing(left, right, "trials")
    if found := found or resume_check.differing(_study(one), _study(other), "study"):
        return found
    left, right = (json.loads((sweep / "index.json").read_text()) for sweep in (one, other))
    if found := resume_check.differing(left, right, "index.json"):
        return found
    for trial in Sweep.open(one).trials():
        if found := run_difference(trial.path, other / trial.name):
            return f"trial {trial.name}: {found}"
    return None


def _study(sweep: Path) -> list[Any]:
    """What the study of a search knows of its trials."""
    if not (sweep / "study.db").exists():
        return []
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials = optuna.load_study(study_name=None, storage=f"sqlite:///{sweep}/study.db").get_trials()
    return [[each.number, each.state.name, each.params, each.values, each.intermediate_values] for each in trials]


def _summary(run: Path) -> dict[str, Any]:
    return {name: value for name, value in Run(run).summary.to_plain().items() if name not in CLOCKS}


def _names(run: Path) -> dict[str, bool]:
    found = (str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    return {name: True for name in found if not name.endswith(".lock")}


def _is_done(kind: Kind, run: Path) -> bool:
    if not kind.is_sweep:
        return stands(run, Run(run).summary) == "finished"
    if not (run / "index.json").exists():
        return False
    trials = Sweep.open(run).trials()
    asked_for = [word for word in kind.words if word.startswith("hydra.sweeper.n_trials=")]
    if asked_for and len(trials) < int(asked_for[0].partition("=")[2]):
        return False
    told = json.loads((run / "index.json").read_text())["trials"]
    return told == [trial.row() for trial in trials] and all(
        trial.status in ENDED and trial.status != "failed" for trial in trials
    )


def _errors(child: Child) -> list[str]:
    return [line for line in child.stderr.splitlines() if line.startswith("error: ")]


def _place(kind: Kind, which: int | str) -> str:
    """Where a run of a kind is made, relative to the campaign's folder: in a folder of its own."""
    name = "".join(char if char.isalnum() else "-" for char in kind.name.lower())
    return f"{name}-{which}/run"


def stories(campaign: Campaign, kind: Kind, kills: int) -> Iterator[tuple[int, Story]]:
    """Runs of a kind, with their numbers, until so many kills have hit."""
    number = 0
    while kills > 0:
        story = campaign.story(kind, number)
        yield number, story
        kills -= max(len(story.kills), 0 if number < 1000 else 1)
        number += 1
