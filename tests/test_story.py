"""The story of a run, as docs/architecture.md tells it: few files, each leading to the next."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY
from tests.test_imports import imported

MAX_FILES = 8
NAMED_BY_CONFIG = {"seqtrain.tasks.next_token", "seqtrain.models.recurrent"}
"""What no module imports: a config names it."""


def story() -> list[str]:
    """The modules of the story, in the order in which they are told."""
    page = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    part = page.partition("<!-- story -->")[2].partition("<!-- /story -->")[0]
    paths = re.findall(r"^\d\. \[(seqtrain/[\w/]+)\.py\]", part, re.MULTILINE)
    return [path.replace("/", ".") for path in paths]


def test_few_files_lie_between_the_command_and_the_record() -> None:
    assert 3 < len(story()) <= MAX_FILES


def test_each_file_of_the_story_is_imported_by_one_that_was_told_before() -> None:
    told = story()
    for place, module in enumerate(told[1:], 1):
        if module not in NAMED_BY_CONFIG:
            assert any(module in imported(before) for before in told[:place]), module


def test_the_story_itself_is_short() -> None:
    assert len((REPOSITORY / "seqtrain" / "experiment" / "story.py").read_text("utf-8").splitlines()) <= 200
