"""Laws of docs/lecture.md: each number on it is one that a command above it wrote."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks import lecture
from benchmarks.lecture import VALUE, Section, looked_up, sections, values
from seqtrain.cli.main import COMMANDS
from tests.conftest import REPOSITORY, Seqtrain

TEXT = lecture.PAGE.read_text("utf-8")
KEPT = json.loads(lecture.NUMBERS.read_text("utf-8"))
CHEAP = 20.0  # seconds of a command, when the page was made
QUICK = [
    part
    for part in sections(TEXT)
    if not part.alone  # its times are of one machine, as are the last digits of what is trained
    and VALUE.search(TEXT.partition(f"## {part.title}\n")[2].partition("\n## ")[0])
    and not any(line.startswith("seqtrain train") and "dry_run" not in line for line in part.commands)
    and all(KEPT["seconds"].get(line, CHEAP + 1) <= CHEAP for line in part.commands)
]
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def test_each_number_is_the_one_that_was_measured() -> None:
    quoted = list(values(TEXT))
    assert quoted
    for value, shown in quoted:
        assert shown == value.text(KEPT["numbers"][value.key]), value


def test_each_block_of_commands_stands_above_its_seconds() -> None:
    assert lecture.timed(TEXT, KEPT["seconds"]) == TEXT
    assert len(lecture.SPENT.findall(TEXT)) == len(lecture.BLOCK.findall(TEXT))


def test_each_equation_stands_above_in_a_form_that_a_terminal_shows() -> None:
    pieces = re.split(r"^```math$", TEXT, flags=re.MULTILINE)[:-1]
    assert len(pieces) > 10
    assert set(re.findall(r"\\begin{(\w+)}", TEXT)) == {"array"}  # of others the site's MathML is wrong
    for piece in pieces:
        assert re.search(r"`[^`]+`", piece.rstrip().rpartition("\n\n")[2]), piece[-200:]


@pytest.mark.long
@pytest.mark.parametrize("section", QUICK, ids=lambda section: section.title)
def test_a_quick_section_gives_the_numbers_that_it_shows(
    section: Section, seqtrain: Seqtrain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in section.commands:
        program, *words = shlex.split(command)
        if program == "python":
            monkeypatch.setattr(sys, "argv", [str(REPOSITORY / words[0]), *words[1:]])
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            assert seqtrain(*words, cwd=tmp_path).rc == 0, command
    for value, shown in values(TEXT):
        if (tmp_path / "outputs" / value.file).exists():
            found = value.text(looked_up(value, tmp_path / "outputs"))
            assert NUMBER.sub("", found) == NUMBER.sub("", shown)
            assert numbers(found) == pytest.approx(numbers(shown), rel=0.02), value  # kernels differ by machine


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def test_the_commands_of_the_page_are_those_that_were_measured() -> None:
    shown = [command for section in sections(TEXT) for command in section.commands]
    assert sorted(shown) == sorted(KEPT["seconds"])


def test_each_picture_of_the_page_is_there_and_no_other() -> None:
    shown = {lecture.KEPT / name for name in lecture.PICTURE.findall(TEXT)}
    assert shown == set(lecture.KEPT.rglob("*.png"))


def test_each_value_is_of_a_command_of_the_page() -> None:
    written = set()
    for section in sections(TEXT):
        for command in section.commands:
            program, first, *_ = command.split()
            if program == "python":
                assert (REPOSITORY / first).is_file(), command
                written.add(f"demo/{Path(first).stem.replace('_', '-')}")
            else:
                assert first in COMMANDS, command
                written.add(first)
    for value, _ in values(TEXT):
        folders = value.file.split("/")
        assert {folders[0], "/".join(folders[:2])} & written or _is_named(folders[0]), value


def _is_named(folder: str) -> bool:
    """Whether a command of the page names this folder of outputs/ as the place of its run or files."""
    return any(f"outputs/{folder}" in command for section in sections(TEXT) for command in section.commands)


def test_the_layers_that_the_page_shows_are_those_that_show_prints(seqtrain: Seqtrain, tmp_path: Path) -> None:
    (command,) = re.findall(r"^seqtrain (show model=gpt .*)$", TEXT, re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(name .*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert seqtrain(*command.split(), cwd=tmp_path).out == shown


CLAIMS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.partition("## All claims in one table")[2].splitlines()
    if re.match(r"\| \d+ \|", line)
]
MARKS = {
    "yes": {
        *("yes", "yes, one seed", "no", "part", "not decided", "runs", "by count yes, by time no"),
        *("made-up yes, ETTh1 no", "equal size no, half not decided"),
    },
    "no": {""},
    "needs a GPU": {""},
}


def test_each_claim_has_a_command_that_is_there_and_says_what_came_out() -> None:
    assert [int(number) for number, *_ in CLAIMS] == list(range(1, len(CLAIMS) + 1))
    assert len(CLAIMS) >= 58
    for _, claim, command, _, here, agrees in CLAIMS:
        assert re.sub(r"^\[(.*)\]\(\S+\)$", r"\1", agrees) in MARKS[here], claim
        program, _, rest = command.strip("`").partition(" ")
        if program == "python":
            assert (REPOSITORY / rest.split()[0]).is_file(), claim
        elif program == "make":
            assert f"\n{rest}:" in (REPOSITORY / "Makefile").read_text("utf-8"), claim
        elif program == "seqtrain":  # whether a training composes is asked of every page, in test_docs.py
            assert rest.split()[0] in COMMANDS, claim
        else:
            assert (program, here) == ("", "no"), claim


def test_a_run_that_a_claim_names_is_made_by_a_section() -> None:
    made = set(re.findall(r"(?:run_dir=|sweep\.dir=|--out )(outputs/\w+)", TEXT))
    assert {name for _, _, command, *_ in CLAIMS for name in re.findall(r"(outputs/\w+)(?!\S*png)\b", command)} <= made


MEAN = """
import torch

from seqtrain.models.base import Capability, SequenceModel, read_by_length


class Mean(SequenceModel):
    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed, dim):
        super().__init__()
        self.embed, self.dim = embed, dim

    def initial(self, batch):
        like = next(self.embed.parameters())
        return {"sum": like.new_zeros(batch, self.dim), "count": like.new_zeros(batch, 1)}

    def forward(self, tokens, state=None, lengths=None):
        return read_by_length(self.read, tokens, self.initial(len(tokens)) if state is None else state, lengths)

    def read(self, tokens, state):
        x = self.embed(tokens)
        sums = state["sum"].unsqueeze(1) + x.cumsum(1)
        counts = state["count"].unsqueeze(1) + torch.arange(1, x.shape[1] + 1).to(x).view(1, -1, 1)
        return sums / counts, {"sum": sums[:, -1], "count": counts[:, -1]}
"""


def test_the_contract_grades_the_first_three_exercises(seqtrain: Seqtrain, tmp_path: Path) -> None:
    for folder in ("my_package", "my_configs/model"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "my_configs" / "model" / "mean.yaml").write_text("_target_: my_package.mean.Mean\ndim: 8\n")
    words = ("contract", "--config-dir", "my_configs", "--trust", "my_package", "model=mean")
    for was, wrong, broken in (
        ("x = self.embed(tokens)", "x = self.embed(tokens)", None),
        ("x = self.embed(tokens)", "x = self.embed(tokens.roll(-1, 1))", "later"),
        ('{"sum": sums[:, -1], "count": counts[:, -1]}', "self.initial(len(x))", "chunks"),
    ):
        (tmp_path / "my_package" / "mean.py").write_text(MEAN.replace(was, wrong))
        answer = seqtrain(*words, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
        assert answer.rc == (1 if broken else 0), answer.out + answer.err
        unlawful = [line.lower() for line in answer.out.splitlines() if "does not hold" in line]
        assert not broken or any(broken in line for line in unlawful), answer.out
