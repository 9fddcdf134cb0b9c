"""The changes of a working tree are hashed and kept in the run, without secrets, and never beyond a size."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.runs import git_commit as module
from seqtrain.runs.git_commit import code_diff, code_entries
from seqtrain.runs.summary import Summary
from tests.runs.test_git_commit import checkout, git  # noqa: F401


@pytest.fixture
def folder(checkout: Path) -> Path:  # noqa: F811
    """A checkout of one commit, with code.py and sub/more.py."""
    return checkout


def hash_of(folder: Path) -> str:
    found = code_diff(folder)
    assert found is not None
    return found.hash


def test_a_clean_tree_has_no_diff_and_a_changed_one_its_text(folder: Path) -> None:
    assert code_diff(folder) is None
    (folder / "notes.txt").write_text("no code")
    assert code_diff(folder) is None, "git does not know it, and it is no code"
    (folder / "code.py").write_text("x = 2\n")
    found = code_diff(folder / "sub")
    assert found is not None
    assert found.text.endswith("-x = 1\n+x = 2\n")
    assert found.about == {"hash": found.hash, "bytes": len(found.text), "untracked": [], "left_out": []}
    git(folder, "add", "code.py")
    assert hash_of(folder) == found.hash, "staged or not is the same code"


def test_a_new_file_alone_is_a_change_without_text(folder: Path) -> None:
    (folder / "new.py").write_text("z = 1\n")
    found = code_diff(folder)
    assert found is not None
    assert (found.text, found.about["untracked"]) == ("", ["new.py"])


def test_no_two_trees_of_other_code_have_the_same_hash(folder: Path) -> None:
    hashes = []
    for number in (2, 3):
        (folder / "code.py").write_text(f"x = {number}\n")
        hashes.append(hash_of(folder))
    for number in (1, 2):
        (folder / "new.py").write_text(f"z = {number}\n")
        hashes.append(hash_of(folder))
    assert len(set(hashes)) == 4
    found = code_diff(folder)
    assert found is not None
    assert found.about["untracked"] == ["new.py"]
    assert "z = 2" not in found.text, "of a file that git does not know the name alone is kept"
    (folder / ".gitignore").write_text("new.py\n.gitignore\n")
    assert hash_of(folder) == hashes[1], "what git ignores is no code"


def test_a_file_whose_name_says_secrets_is_not_kept(folder: Path) -> None:
    names = [".env", "client_secrets.py", "prod.env.yaml"]
    for content in ("A=1\n", "PIN=hunter2hunter2\n"):
        for name in names:
            (folder / name).write_text(content)
        git(folder, "add", "-f", *names)
        if content == "A=1\n":
            git(folder, "commit", "-qm", "second")
    (folder / "code.py").write_text("token = 'abc'\n")
    found = code_diff(folder)
    assert found is not None
    assert "hunter" not in found.text
    assert "+token = 'abc'" in found.text, "no line is rewritten"
    assert found.about["left_out"] == [f"{name}: may hold secrets" for name in names]


def test_a_file_that_is_too_large_to_keep_is_named_and_still_hashed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 500)
    (folder / "code.py").write_text("x = 2\n")
    (folder / "sub" / "more.py").write_text("y = 2\n" * 200)
    found = code_diff(folder)
    assert found is not None
    assert "x = 2" in found.text
    assert "y = 2" not in found.text
    assert found.about["left_out"] == ["sub/more.py: over 500 bytes in all"]
    (folder / "sub" / "more.py").write_text("y = 3\n" * 200)
    assert hash_of(folder) != found.hash


def test_nothing_that_the_checkout_names_runs(folder: Path) -> None:
    """Of an external diff, a text conversion and a filter, named by attributes and a configuration of the checkout."""
    mark = folder.parent / "ran"
    (folder / ".gitattributes").write_text("*.py diff=mine filter=mine\n")
    for name in ("diff.mine.textconv", "diff.mine.command", "filter.mine.clean", "diff.external"):
        git(folder, "config", name, f"touch {mark}; cat")
    (folder / "code.py").write_text("x = 2\n")
    assert code_diff(folder) is not None
    assert not mark.exists()


def test_each_code_that_a_run_was_trained_with_is_said_once(folder: Path) -> None:
    head = git(folder, "rev-parse", "HEAD")
    summary = Summary(commit=head)
    summary.update(**code_entries(summary, None))
    assert summary.code == [head]
    (folder / "code.py").write_text("x = 2\n")
    found = code_diff(folder)
    assert found is not None
    for _ in range(2):  # two attempts with the same changes
        summary.commit = f"{head}+"
        summary.update(**code_entries(summary, found))
    assert summary.code == [head, f"{head}+{found.hash}"]
    assert code_entries(Summary(), None) == {}, "outside a checkout nothing is known"
