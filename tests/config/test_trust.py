"""Which packages of others are trusted, and for how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from seqtrain.cli import main as command_line
from seqtrain.cli.arguments import Parser
from seqtrain.config.targets import refusal
from seqtrain.config.trust import trust_words, trusted, trusting

TARGET = "mine.net.Net"


def test_trust_ends_with_its_block_and_reaches_no_inner_block_and_no_other_thread() -> None:
    def fail() -> None:
        assert (refusal(TARGET), trust_words()) == (None, ["--trust", "mine"])
        with trusting(["theirs"]):
            assert refusal(TARGET) is not None
            assert refusal("theirs.Net") is None
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(trusted).result() == ()
        raise ZeroDivisionError

    assert (trusted(), trust_words()) == ((), [])
    with pytest.raises(ZeroDivisionError), trusting(["mine"]):
        fail()
    assert refusal(TARGET) is not None


def test_a_command_trusts_all_it_is_told_to_and_only_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []
    parsing = iter(("parse_args", "parse_intermixed_args", "parse_known_args"))

    class Command:
        @staticmethod
        def main(argv: list[str]) -> int:
            parser = Parser("matrix", "A command.", "an example")
            parser.add_argument("words", nargs="*")
            getattr(parser, next(parsing))(argv)
            seen.append(trusted())
            return 0

    monkeypatch.setattr(command_line.importlib, "import_module", lambda name: Command)
    words = ["matrix", "--trust", "mine", "a", "--trust", "theirs"]
    assert [command_line.main(argv) for argv in (words, words, ["matrix"])] == [0, 0, 0]
    assert seen == [("mine", "theirs"), ("mine", "theirs"), ()]
    assert trusted() == ()
