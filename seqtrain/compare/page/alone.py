"""Answers about a single run: how good it is, what it cost, how it ended, and what to do next."""

from __future__ import annotations

from seqtrain.compare.baselines import standing_words
from seqtrain.compare.entries import Entry, number
from seqtrain.compare.groups import Group
from seqtrain.compare.page.answers import BETTER, Answers, cost_words, duration, ending_words
from seqtrain.compare.page.progress import progress, resume_command, trusted
from seqtrain.compare.page.rows import Endings
from seqtrain.compare.verdict import describe_status
from seqtrain.runs.provenance import HIDDEN
from seqtrain.terminal import pasted, printable

SEEDS = 3  # with which a run is repeated
ENDED = {
    "steps": ": as many as it was planned for",
    "seconds": ": its time was up",
    "early_stopping": ": validation became no better (early stopping)",
}
# Words of a training's command that belong to that one run.
OWN_KEYS = ("seed=", "run_dir=", "hydra.run.dir=", "hydra.sweep.dir=")


def answers(group: Group, endings: Endings) -> Answers:
    """Return questions and answers about a group's only run."""
    entry = group.entries[0]
    # A run that goes on has no end yet.
    last = "How far is it?" if entry.status == "running" else "How did it end?"
    found: Answers = [("How good is it?", _figures(group, endings))]
    beside = standing_words(entry.metric(group.metric), group.entries, group.metric, group.mode)
    if beside:
        found.append(("Better than baselines?", beside))
    if entry.finished:
        found.append(("Is it sure?", "one run says nothing of chance: other seeds would"))
    found += [
        ("Is it overfitting?", ending_words("this run", group.entries, endings).removeprefix("this run: ")),
        ("What did it cost?", f"{cost_words(group.entries) or 'not known yet'}{_machine(entry)}"),
        (last, _end(entry)),
    ]
    return found


def next_steps(entry: Entry) -> list[tuple[str, str]]:
    """Return the possible next steps with a run, each as a label and its command."""
    steps = []
    words = trusted(entry)
    if entry.summary.command:
        steps.append(("made by", printable(pasted(*map(str, entry.summary.command)))))
    resume = resume_command(entry)
    if resume:
        steps.append(("go on with it", resume))
    if entry.finished:
        planned = number(entry.summary.max_steps)
        if planned:  # else the clock decides
            longer = pasted("seqtrain", "resume", entry.path, *words, f"trainer.max_steps={int(2 * planned)}")
            steps.append(("train it twice as long", longer))
    # Each look at test makes it less of a test, so it is offered once all is done.
    if entry.finished and "test" in entry.summary.splits:
        steps.append(("measure it on test", f"{pasted('seqtrain', 'evaluate', entry.path, *words)} --split test"))
    if entry.finished:
        # Its words may be a stranger's, who would have a reader paste more than one command.
        example = entry.summary.example_text
        text = pasted((example or "TEXT").strip("'"))
        steps.append(("ask it", f"{pasted('seqtrain', 'predict', entry.path, *words)} {text}"))
    repeat = _repeat(entry)
    if repeat:
        steps.append((f"repeat it with {SEEDS} other seeds", repeat))
    return steps


def _figures(group: Group, endings: Endings) -> str:
    """The metric at the end, and at its best."""
    entry = group.entries[0]
    final = entry.metric(group.metric)
    if final is None:
        return f"it has no {group.unit} of {group.split} yet"
    when = "at its last validation"
    if entry.finished:
        when = "at the end"
    words = f"{final:.5g} {group.unit} of {group.split} {when} ({BETTER[group.mode]} is better)"
    ending = endings.get(id(entry))
    if ending is None or ending.best_step == ending.last_step:
        return words
    return f"{words}; best {ending.best:.5g} at step {ending.best_step:,} of {ending.last_step:,}"


def _machine(entry: Entry) -> str:
    cpu, cores = entry.summary.cpu, entry.summary.cores
    if not cpu:
        return ""
    words = f", on {cpu}"
    if cores:
        words += f", {cores} cores"
    return words


def _end(entry: Entry) -> str:
    """Return how the run ended or, while it is running, its progress."""
    if entry.finished:
        steps = number(entry.summary.steps)
        words = "finished"
        if steps is not None:
            words += f" after {int(steps):,} steps"
        return words + ENDED.get(entry.summary.ended_by or "", "")
    # How far it came stands behind why it ended there.
    parts = [describe_status(entry.status, entry.reason), progress_words(entry)]
    return "; ".join(filter(None, parts))


def progress_words(entry: Entry) -> str:
    """Return the progress of an unfinished run: step, rate, and the estimated training time that is left."""
    where = progress(entry)
    if where is None or where["step"] is None:
        return ""
    words = [f"step {int(where['step']):,}"]
    if where["of"]:
        words[0] += f" of {int(where['of']):,}"
    if where["share"] is not None:
        words[0] += f" ({where['share']:.0%})"
    if where["rate"]:
        words.append(f"{where['rate']:.3g} steps/s")
    if where["left"] is not None:
        # Validations are not counted in it, which the words `of training` say.
        words.append(f"about {duration(where['left'])} of training left")
        if where["early"]:
            words.append("or less by early stopping")
    return ", ".join(words)


def _repeat(entry: Entry) -> str | None:
    """Return the command that trains the run again with other seeds; None if its own command is not fully known."""
    # From Python there was no command line; a masked secret would not be understood again.
    command = entry.summary.command
    words = list(map(str, command))
    if list(words[:2]) != ["seqtrain", "train"] or "-m" in words or HIDDEN in " ".join(words):
        return None
    if not isinstance(entry.seed, int):
        return None
    again = ["seqtrain", "train", "-m"]
    for word in words[2:]:
        # Its own place and seed are what is to change.
        if not word.startswith(OWN_KEYS):
            again.append(word)
    seeds = range(entry.seed + 1, entry.seed + 1 + SEEDS)
    return pasted(*again, f"seed={','.join(map(str, seeds))}")
