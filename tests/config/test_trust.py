"""Which packages of others are trusted, and for how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from seqtrain.cli import main as command_line
from seqtrain.cli.arguments import Parser
from seqtrain.config.targets import refusal
from seqtrain.config.trust import trust_words, trusted, trusting

TARGET = "mine.net.Net"


def test_nothing_is_trusted_that_nobody_has_named() -> None:
    assert trusted() == ()
    assert trust_words() == []
    assert refusal(TARGET) is not None


def test_trust_ends_with_its_block_also_where_the_block_fails() -> None:
    def fail() -> None:
        assert refusal(TARGET) is None
        assert trust_words() == ["--trust", "mine"]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), trusting(["mine"]):
        fail()
    assert refusal(TARGET) is not None


def test_an_inner_call_does_not_inherit_what_an_outer_one_trusts() -> None:
    with trusting(["mine"]):
        with trusting(["theirs"]):
            assert refusal(TARGET) is not None
            assert refusal("theirs.Net") is None
        assert refusal(TARGET) is None


def test_another_thread_trusts_nothing_of_this_one() -> None:
    with trusting(["mine"]), ThreadPoolExecutor(1) as pool:
        assert pool.submit(trusted).result() == ()


@pytest.mark.parametrize("parse", ["parse_args", "parse_intermixed_args", "parse_known_args"])
def test_a_command_trusts_all_it_is_told_to_and_only_to_its_end(parse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []

    class Command:
        @staticmethod
        def main(argv: list[str]) -> int:
            parser = Parser("matrix", "A command.", "an example")
            parser.add_argument("words", nargs="*")
            getattr(parser, parse)(argv)
            seen.append(trusted())
            return 0

    monkeypatch.setattr(command_line.importlib, "import_module", lambda name: Command)
    words = ["matrix", "--trust", "mine", "a", "--trust", "theirs"]
    assert command_line.main(words) == 0
    assert command_line.main(["matrix"]) == 0
    assert seen == [("mine", "theirs"), ()]
    assert trusted() == ()
