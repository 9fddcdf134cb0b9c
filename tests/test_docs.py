"""Laws of README.md, CONTRIBUTING.md and docs/: what they name is there, and the commands that they show compose."""

from __future__ import annotations

import itertools
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from seqtrain.cli.main import COMMANDS
from seqtrain.config import check
from tests.conftest import REPOSITORY

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
HISTORY = ("notebook.md", "benchmarks.md")  # they say what was true when it was written, commands included
EXAMPLES = ("CONTRIBUTING.md",)  # its commands choose what a reader has yet to write; test_playbooks.py runs them
CURRENT = [page for page in PAGES if page.name not in HISTORY]
COMPOSED = [page for page in CURRENT if page.name not in EXAMPLES]

PATH = re.compile(r"\b((?:seqtrain|tests|conf|docs|examples)/[\w./-]*\w/?)")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$|`(seqtrain [^`]+)`", re.MULTILINE | re.DOTALL)
HEREDOC_OR_LINE = re.compile(r"^.*<<'E'\n(?s:.*?)\nE$|^.+$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
PLACEHOLDERS = ("...", "{", "seed=1..5", "SETTINGS", "$")
"""What stands for something in a command that is not written out; such a command is not composed."""


def text_of(page: Path) -> str:
    return page.read_text("utf-8")


def lines(page: Path) -> list[str]:
    """The shell lines on a page in their order: of blocks, and what begins with `seqtrain ` between backquotes.

    A line that ends in a backslash goes on; one with `<<'E'` goes on to the line `E`.
    """
    found: list[str] = []
    for language, block, inline in FENCED.findall(text_of(page)):
        if inline:
            found.append(inline)
        elif language in ("", "bash"):
            found += HEREDOC_OR_LINE.findall(block.replace("\\\n", " "))
    return [line.removeprefix("$ ") for line in found]


def commands(page: Path) -> list[list[str]]:
    """The words of every seqtrain command on a page, in blocks and between backquotes."""
    return [shlex.split(line, comments=True) for line in lines(page) if re.match(r"seqtrain [\w-]+( |$)", line)]


def refused_on_purpose(page: Path, words: list[str]) -> bool:
    """Whether the page shows, below the command, the error that answers it."""
    return f"$ {shlex.join(words)}\nerror: " in text_of(page)


def test_every_file_that_a_page_names_exists() -> None:
    named = {(page.name, name.rstrip(".")) for page in CURRENT for name in PATH.findall(text_of(page))}
    assert [(page, name) for page, name in sorted(named) if not (REPOSITORY / name).exists()] == []


def test_every_link_of_a_page_leads_somewhere() -> None:
    links = [(page, path, place) for page in PAGES for path, place in LINK.findall(text_of(page))]
    assert [f"{page.name}: {path}#{place}" for page, path, place in links if not leads(page, path, place)] == []


def leads(page: Path, path: str, place: str) -> bool:
    target = page.parent / path if path else page
    if not target.exists():
        return False
    if not place:
        return True
    if place.startswith("L"):
        return int(place[1:].partition("-")[0]) <= len(text_of(target).splitlines())
    return place in anchors(text_of(target))


def anchors(text: str) -> set[str]:
    """The names by which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.long
@pytest.mark.parametrize("page", COMPOSED, ids=lambda page: page.name)
def test_every_training_that_a_page_shows_composes(page: Path) -> None:
    for words in commands(page):
        whole = not any(mark in word for mark in PLACEHOLDERS for word in words)
        if words[1] == "train" and whole and not refused_on_purpose(page, words):
            compose(tuple(one_trial(words[2:])))


compose = cache(check.compose)  # several pages show the same command


def one_trial(words: list[str]) -> list[str]:
    """The overrides of a command; of a sweep those of its first trial."""
    overrides = [word for word in words if not word.startswith("-")]
    if "-m" not in words:
        return overrides[:-1] if "--cfg" in words else overrides  # the word behind --cfg says what is shown
    of_the_sweep = ("hydra.", "hydra/", "sweep=")
    own = [word for word in overrides if not word.startswith(of_the_sweep) and "(" not in word]  # no search space
    return [word if "[" in word else word.partition(",")[0] for word in own]


def test_every_command_and_flag_that_a_page_shows_exists() -> None:
    sources = "".join(path.read_text("utf-8") for path in (REPOSITORY / "seqtrain" / "cli").glob("*.py"))
    known = {*re.findall(r'"(--?[a-z][\w-]*)"', sources), "--cfg", "--info", "--help"}
    for words in (words for page in CURRENT for words in commands(page)):
        assert words[1] in COMMANDS, words
        own = words[: words.index("|")] if "|" in words else words
        named = [word for before, word in itertools.pairwise(own) if before != "--sort"]  # `--sort -seconds`
        flags = [word.partition("=")[0] for word in named if re.match(r"--?[a-z]", word)]
        assert [flag for flag in flags if flag not in known] == [], words


def test_the_table_of_groups_names_every_choice() -> None:
    table = re.findall(r"^\| `(task|data|model)=` \| (.+) \|$", text_of(REPOSITORY / "docs/running.md"), re.MULTILINE)
    shipped = [(group, file.stem, row) for group, row in table for file in (REPOSITORY / "conf" / group).glob("*.yaml")]
    left_out = [f"{group}={name}" for group, name, row in shipped if not re.search(rf"\b{name}\b", row)]
    assert (len(table), left_out) == (3, ["data=batching"])  # no data set: its options are part of the others


def test_the_front_page_is_short_and_has_a_line_for_every_room() -> None:
    front = text_of(REPOSITORY / "README.md")
    assert len(front.splitlines()) <= 140
    rooms = {path.parent.name for path in (REPOSITORY / "seqtrain").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)/` \|", front, re.MULTILINE)) == rooms
