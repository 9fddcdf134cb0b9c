"""The commit of the checkout one stands in is told truly, and nothing that the checkout brings runs for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from seqtrain.runs import provenance as module
from seqtrain.runs.provenance import code_diff, code_entries, environment
from seqtrain.runs.summary import Summary

MINE = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *words: str) -> str:
    """What git answers to the person who made this checkout."""
    command = ["git", "-c", "protocol.file.allow=always", *words]
    answer = subprocess.run(command, cwd=folder, env=os.environ | MINE, capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def told() -> str | None:
    return environment()["commit"]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of one commit, in which the process stands."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "code.py").write_text("x = 1\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "more.py").write_text("y = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    monkeypatch.chdir(folder)
    return folder


def test_the_commit_is_that_of_the_checkout_and_a_plus_says_that_files_differ(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert told() == head
    monkeypatch.chdir(checkout / "sub")
    assert told() == head
    (checkout / "untracked").write_text("new")
    assert told() == head, "what is not tracked is no difference"
    (checkout / "code.py").write_text("x = 2\n")
    assert told() == f"{head}+"
    git(checkout, "add", "code.py")
    assert told() == f"{head}+", "staged is different, too"
    git(checkout, "commit", "-qm", "second")
    assert told() == git(checkout, "rev-parse", "HEAD") != head


def test_packed_references_a_detached_head_and_worktrees_are_read(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    git(checkout, "pack-refs", "--all")
    assert told() == head
    git(checkout, "worktree", "add", "-q", "../other")
    monkeypatch.chdir(checkout.parent / "other")
    assert told() == head
    (checkout.parent / "other" / "code.py").write_text("x = 3\n")
    assert told() == f"{head}+"
    monkeypatch.chdir(checkout)
    git(checkout, "checkout", "-q", "--detach")
    assert told() == head


def test_a_folder_s_name_may_hold_any_character(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    for name, expected in (("a\u2028b \x85c", head), ("a\nb", None)):  # git's answer has a line for each folder
        monkeypatch.chdir(checkout.parent)
        checkout = checkout.rename(name).absolute()
        monkeypatch.chdir(checkout)
        assert told() == expected


def test_without_a_checkout_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert told() is None
    git(tmp_path, "init", "-q")
    assert told() is None, "a checkout without a commit has none either"


def program(folder: Path, trace: Path) -> Path:
    """A program that leaves a trace when somebody runs it."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\necho ran >> {trace}\ncat\n")
    path.chmod(0o755)
    return path


def _fsmonitor(folder: Path, trace: Path) -> None:
    git(folder, "config", "core.fsmonitor", str(program(folder.parent, trace)))


def _filter(kind: str) -> Callable[[Path, Path], None]:
    def lay(folder: Path, trace: Path) -> None:
        git(folder, "config", f"filter.evil.{kind}", str(program(folder.parent, trace)))
        (folder / ".gitattributes").write_text("* filter=evil\n")
        os.utime(folder / "code.py", (1, 1))  # so that git looks into the file again

    return lay


def _include(folder: Path, trace: Path) -> None:
    (folder.parent / "more").write_text(f"[core]\n\tfsmonitor = {program(folder.parent, trace)}\n")
    git(folder, "config", "include.path", str(folder.parent / "more"))


def _in_submodule(folder: Path, trace: Path) -> None:
    other = folder.parent / "library"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-qm", "first", "--allow-empty")
    git(folder, "submodule", "add", "-q", str(other), "library")
    git(folder, "commit", "-qm", "with a library")
    git(folder / "library", "config", "core.fsmonitor", str(program(folder.parent, trace)))


def _elsewhere(folder: Path, trace: Path) -> None:
    """A .git that is a file, as in worktrees, and names a folder with a configuration."""
    (folder / ".git").rename(folder / "data")
    (folder / ".git").write_text("gitdir: data\n")
    _fsmonitor(folder, trace)


def _git_of_its_own(folder: Path, trace: Path) -> None:
    program(folder, trace).rename(folder / "git")


LAID: dict[str, Callable[[Path, Path], None]] = {
    "core.fsmonitor": _fsmonitor,
    "filter that cleans": _filter("clean"),
    "filter that is a process": _filter("process"),
    "configuration that is included": _include,
    "configuration of a submodule": _in_submodule,
    "git folder elsewhere": _elsewhere,
    "program named git": _git_of_its_own,
}


@pytest.mark.parametrize("name", LAID)
def test_nothing_of_a_stranger_s_checkout_runs(checkout: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    trace = checkout.parent / "trace"
    LAID[name](checkout, trace)
    trace.unlink(missing_ok=True)  # of laying it
    told()
    assert not trace.exists()


def test_a_head_that_is_a_pipe_or_names_a_file_elsewhere_is_no_commit(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqtrain.runs.provenance.PATIENCE_SECONDS", 0.5)
    (checkout / ".git" / "HEAD").write_text("ref: refs/../../../secret\n")
    (checkout.parent / "secret").write_text("0" * 40)
    assert told() is None
    (checkout / ".git" / "HEAD").unlink()
    os.mkfifo(checkout / ".git" / "HEAD")
    assert told() is None


def test_a_checkout_that_git_cannot_compare_is_marked(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    (checkout / ".git" / "index").write_text("no index")
    assert told() == f"{head}?"


# -- changes of a working tree ----------------------------------------------------------------------------------------


def hash_of(checkout: Path) -> str:
    found = code_diff(checkout)
    assert found is not None
    return found.hash


def test_a_clean_tree_has_no_diff_and_a_changed_one_its_text(checkout: Path) -> None:
    assert code_diff(checkout) is None
    (checkout / "notes.txt").write_text("no code")
    assert code_diff(checkout) is None, "git does not know it, and it is no code"
    (checkout / "code.py").write_text("x = 2\n")
    found = code_diff(checkout / "sub")
    assert found is not None
    assert found.text.endswith("-x = 1\n+x = 2\n")
    assert found.about == {"hash": found.hash, "bytes": len(found.text), "untracked": [], "left_out": []}
    git(checkout, "add", "code.py")
    assert hash_of(checkout) == found.hash, "staged or not is the same code"


def test_a_new_file_alone_is_a_change_without_text(checkout: Path) -> None:
    (checkout / "new.py").write_text("z = 1\n")
    found = code_diff(checkout)
    assert found is not None
    assert (found.text, found.about["untracked"]) == ("", ["new.py"])


def test_no_two_trees_of_other_code_have_the_same_hash(checkout: Path) -> None:
    hashes = []
    for number in (2, 3):
        (checkout / "code.py").write_text(f"x = {number}\n")
        hashes.append(hash_of(checkout))
    for number in (1, 2):
        (checkout / "new.py").write_text(f"z = {number}\n")
        hashes.append(hash_of(checkout))
    assert len(set(hashes)) == 4
    found = code_diff(checkout)
    assert found is not None
    assert found.about["untracked"] == ["new.py"]
    assert "z = 2" not in found.text, "of a file that git does not know the name alone is kept"
    (checkout / ".gitignore").write_text("new.py\n.gitignore\n")
    assert hash_of(checkout) == hashes[1], "what git ignores is no code"


def test_a_file_whose_name_says_secrets_is_not_kept(checkout: Path) -> None:
    names = [".env", "client_secrets.py", "prod.env.yaml"]
    for content in ("A=1\n", "PIN=hunter2hunter2\n"):
        for name in names:
            (checkout / name).write_text(content)
        git(checkout, "add", "-f", *names)
        if content == "A=1\n":
            git(checkout, "commit", "-qm", "second")
    (checkout / "code.py").write_text("token = 'abc'\n")
    found = code_diff(checkout)
    assert found is not None
    assert "hunter" not in found.text
    assert "+token = 'abc'" in found.text, "no line is rewritten"
    assert found.about["left_out"] == [f"{name}: may hold secrets" for name in names]


def test_a_file_that_is_too_large_to_keep_is_named_and_still_hashed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 500)
    (checkout / "code.py").write_text("x = 2\n")
    (checkout / "sub" / "more.py").write_text("y = 2\n" * 200)
    found = code_diff(checkout)
    assert found is not None
    assert "x = 2" in found.text
    assert "y = 2" not in found.text
    assert found.about["left_out"] == ["sub/more.py: over 500 bytes in all"]
    (checkout / "sub" / "more.py").write_text("y = 3\n" * 200)
    assert hash_of(checkout) != found.hash


def test_nothing_that_the_checkout_names_runs(checkout: Path) -> None:
    """Of an external diff, a text conversion and a filter, named by attributes and a configuration of the checkout."""
    mark = checkout.parent / "ran"
    (checkout / ".gitattributes").write_text("*.py diff=mine filter=mine\n")
    for name in ("diff.mine.textconv", "diff.mine.command", "filter.mine.clean", "diff.external"):
        git(checkout, "config", name, f"touch {mark}; cat")
    (checkout / "code.py").write_text("x = 2\n")
    assert code_diff(checkout) is not None
    assert not mark.exists()


def test_each_code_that_a_run_was_trained_with_is_said_once(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    summary = Summary(commit=head)
    summary.update(**code_entries(summary, None))
    assert summary.code == [head]
    (checkout / "code.py").write_text("x = 2\n")
    found = code_diff(checkout)
    assert found is not None
    for _ in range(2):  # two attempts with the same changes
        summary.commit = f"{head}+"
        summary.update(**code_entries(summary, found))
    assert summary.code == [head, f"{head}+{found.hash}"]
    assert code_entries(Summary(), None) == {}, "outside a checkout nothing is known"
