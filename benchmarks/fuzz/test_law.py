"""The fuzzer's law sees what it is there to see."""

from __future__ import annotations

import pytest

from benchmarks.fuzz.law import flaw, in_process
from seqtrain.distributed.fork_server import Result
from seqtrain.errors import UserError

WRONG = {
    "a traceback": Result(1, "", "Traceback (most recent call last):\nKeyError: 3\n", 1.0),
    "killed by SIGSEGV": Result(-11, "", "", 1.0),
    "exit code 3": Result(3, "", "error: x\n", 1.0),
    "without an error": Result(2, "", "what\n", 1.0),
    "an error of": Result(2, "", f"error: {'x' * 20_000}\n", 1.0),
    "control characters": Result(2, "", "error: a\x1b[2J\n", 1.0),
    "a warning of Python": Result(0, "", "/a/b.py:3: UserWarning: old\n", 1.0),
}


@pytest.mark.parametrize("words", list(WRONG))
def test_the_law_says_what_is_wrong_with_an_answer(words: str) -> None:
    assert words in (flaw(WRONG[words]) or "")


def test_one_line_and_success_are_lawful() -> None:
    assert flaw(Result(2, "", "train: 3 tokens\nerror: data.path=x: no such file\n", 1.0)) is None
    assert flaw(Result(0, "fine\n", "", 1.0)) is None


def test_in_this_process_only_a_fault_may_end_the_work() -> None:
    def refuse() -> None:
        raise UserError("model.dim=-1: give more")

    assert in_process(lambda: None) is in_process(refuse) is None
    assert "ZeroDivisionError" in (in_process(lambda: 1 // 0) or "")
    assert "MemoryError" in (in_process(lambda: bytearray(2 << 30)) or "")
