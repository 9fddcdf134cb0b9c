"""Tiny data for every task, and the options of a tiny run on it."""

from __future__ import annotations

from pathlib import Path

from seqtrain.tasks.base import SampleOptions

SAMPLES = SampleOptions(prompt="", length=5, temperature=0.0, top_k=None, top_p=None)
"""What a model is asked to show."""

DATA = {
    "next_token": (
        "data=text",
        "data.path=text.txt",
        "data.split_by=position",
        "data.batch_size=4",
        "data.eval_lanes=3",
    ),
    "masked_lm": ("data=text", "data.path=text.txt", "data.split_by=position", "data.batch_tokens=64"),
    "bidirectional_lm": ("data=text", "data.path=text.txt", "data.split_by=position", "data.batch_tokens=64"),
    "sentiment": ("data=labelled", "data.path=labelled.tsv", "data.batch_tokens=64"),
    "translation": (
        *("data=parallel", "data.source_path=source.txt", "data.target_path=target.txt", "data.batch_tokens=64"),
        "task.max_ratio=0.1",
    ),
    "pairs": (
        *("data=parallel", "data.source_path=source.txt", "data.target_path=target.txt", "data.batch_tokens=256"),
        "task.group_size=4",
    ),
    "regress": ("data=labelled", "data.path=numbered.tsv", "data.batch_tokens=64"),
    "forecast": ("data=seasonal", "data.size=1", "data.length=700", "data.batch_size=8", "task.horizon=5"),
    "tag": ("data=labelled", "data.path=tagged.tsv", "data.batch_tokens=64", "tokenizer=word"),
    "regress_steps": ("data=labelled", "data.path=efforts.tsv", "data.batch_tokens=64", "tokenizer=word"),
}
"""Of each task, to be read in the folder that `files` gives."""

MODELS = {
    "masked_lm": ("model=bert", "model.num_layers=1", "model.num_heads=2"),
    "bidirectional_lm": ("model=elmo", "model.num_layers=1"),
    "sentiment": ("model=gru",),
    "pairs": ("model=bert", "model.num_layers=1", "model.num_heads=2"),
    "regress": ("model=gru",),
    "tag": ("model=gru",),
    "regress_steps": ("model=gru",),
    "translation": ("model=encoder_decoder", "model.num_layers=1", "model.num_heads=2"),
}
SMALL = (
    "data.max_length=16",
    "data.validation_fraction=0.2",
    "model.dim=8",
    "trainer.accelerator=cpu",
    "trainer.threads=1",
    "trainer.log_every=1",
    "logger=none",
    "callbacks=none",
)


def files(folder: Path) -> Path:
    """Writes a text of a few hundred words, labelled texts of all lengths, and lines in two languages; gives folder."""
    lines = [f"line {n} of the text has the number {n * n % 97}" for n in range(60)]
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in lines))
    labelled = [f"{line[: n % 40 + 5]}\t{'no' if n % 3 else 'yes'}\n" for n, line in enumerate(lines)]
    (folder / "labelled.tsv").write_text("text\tlabel\n" + "".join(labelled))
    tagged = [f"{line}\t{' '.join('N' if word.isdigit() else 'O' for word in line.split())}\n" for line in lines]
    (folder / "tagged.tsv").write_text("text\tlabel\n" + "".join(tagged))
    efforts = [f"{line}\t{' '.join(str(len(word)) for word in line.split())}\n" for line in lines]
    (folder / "efforts.tsv").write_text("text\tlabel\n" + "".join(efforts))
    numbered = [f"{line}\t{number * 2.5 - 30}\n" for number, line in enumerate(lines)]
    (folder / "numbered.tsv").write_text("text\tlabel\n" + "".join(numbered))
    (folder / "source.txt").write_text("".join(f"{n} and {n * n % 97}\n" for n in range(40)))
    (folder / "target.txt").write_text("".join(f"{n * n % 97} y {n}{' z' * (n % 4)}\n" for n in range(40)))
    return folder


def options(task: str) -> tuple[str, ...]:
    """The command line of a tiny run of a task that reads examples."""
    return (f"task={task}", *DATA[task], *MODELS[task], *SMALL)
