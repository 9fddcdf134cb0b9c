"""docs/architecture.md leads to the files that it names: each is a link, and what it leads to is there."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "architecture.md"


def test_each_file_that_the_page_names_is_a_link_to_a_file_that_is_there() -> None:
    text = PAGE.read_text("utf-8")
    links = re.findall(r"\[([^]]+)\]\((?![a-z]+:|#)([^)#\s]+)", text)
    assert len(links) > 10
    for name, target in links:
        assert (PAGE.parent / target).exists(), f"{name} leads nowhere: {target}"
    for name in re.findall(r"`([\w./]+/[\w.]+\.py)`", text):
        assert any(named == name for named, _ in links), f"{name} is no link"
