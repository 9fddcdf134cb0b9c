"""Laws of what reaches a terminal: no control bytes, commands that can be pasted, streams that are closed or full."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from seqtrain import terminal
from seqtrain.cli import main
from seqtrain.cli.lines import Line
from seqtrain.errors import MAX_LINE, UserError

STEERING = "\x1b[2J\x9b1m\x07\x08\r\x00\u202e\u2066\u200b\ufeff\x7f\udcff\U000e0041"


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        return True


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def steers(text: str) -> list[str]:
    return [char for char in text if not char.isprintable() and char not in "\n\t"]


def terminals(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, Terminal]:
    """Standard output and error, both terminals from here on."""
    both = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", both[0])
    monkeypatch.setattr(sys, "stderr", both[1])
    return both


def run(monkeypatch: pytest.MonkeyPatch, work) -> int:
    """The exit code of a command that does this work."""
    module = type(sys)("seqtrain.cli.matrix")
    module.main = lambda argv: work() or 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "seqtrain.cli.matrix", module)
    return main.main(["matrix"])


def test_results_on_a_terminal_hold_no_control_characters_and_keep_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = terminals(monkeypatch)
    assert run(monkeypatch, lambda: print(f"a sample{STEERING}\n\tof two lines, é 日本　語")) == 0
    shown = streams[0].getvalue()
    assert steers(shown.replace("\u3000", "")) == []
    assert shown.startswith("a sample\\u001b[2J\\u009b1m")
    assert shown.endswith("\n\tof two lines, é 日本　語\n")


def test_json_on_a_terminal_is_the_same_json(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = terminals(monkeypatch)
    found = {"text": f"é{STEERING}\n"}
    run(monkeypatch, lambda: print(json.dumps(found, ensure_ascii=False)))
    assert steers(streams[0].getvalue()) == []
    assert json.loads(streams[0].getvalue()) == found


def test_results_in_a_file_are_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    run(monkeypatch, lambda: print(STEERING))
    assert file.getvalue() == f"{STEERING}\n"


def test_what_is_told_is_one_line_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = terminals(monkeypatch)

    def fail() -> None:
        terminal.tell(f"step{STEERING}\nerror: forged")
        Line({"line": 1}, f"file{STEERING}:1", "").report(f"bad{STEERING}")
        raise UserError(f"name{STEERING}\nerror: forged")

    assert run(monkeypatch, fail) == 2
    lines = streams[1].getvalue().splitlines()
    assert steers("".join(lines)) == []
    assert [line.partition("\\")[0] for line in lines] == ["step", "error: file", "error: name"]


def test_a_warning_of_a_library_is_told_in_one_line_while_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = terminals(monkeypatch)
    show = warnings.showwarning
    run(monkeypatch, lambda: warnings.warn(f"column{STEERING}\nerror: forged", UserWarning, stacklevel=1))
    assert steers(streams[1].getvalue()) == []
    (line,) = streams[1].getvalue().splitlines()
    assert line.startswith("warning: column\\u001b[2J")
    assert line.endswith("(UserWarning)")
    assert warnings.showwarning is show


def test_what_an_encoding_lacks_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"text": "→ 日本 \U0001f600 \udcff"}
    for encoding in ("ascii", "latin-1", "utf-8"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        assert run(monkeypatch, lambda: print(json.dumps(found, ensure_ascii=False))) == 0
        assert json.loads(raw.getvalue().decode(encoding)) == found


NAMES = [
    *("my run", "it's", '"', "$HOME", "`id`", "-rf", "--help", "a\nb", "\x1b[2J", "日本", "~", "a;b", "\udcff"),
    "\\n'x",
]


def test_a_printed_command_gives_the_same_words_when_it_is_pasted() -> None:
    script = "show() { printf '%s\\0' \"$@\"; }\n"
    script += "".join(f"show {terminal.pasted('resume', Path(name), f'run_dir={name}')}\n" for name in NAMES)
    assert script.isprintable() or steers(script) == []
    answer = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    words = [word.decode("utf-8", "surrogateescape") for word in answer.split(b"\0")[:-1]]
    paths = [f"./{name}" if name.startswith("-") else name for name in NAMES]
    assert words == [
        word for path, name in zip(paths, NAMES, strict=True) for word in ("resume", path, f"run_dir={name}")
    ]


# -- streams that take nothing ------------------------------------------------------------------------------------


def test_a_full_standard_output_is_one_line_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    error = Terminal()
    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(sys, "stderr", error)
    assert run(monkeypatch, lambda: print("result")) == 1
    assert error.getvalue().splitlines() == [
        "error: standard output cannot be written (No space left on device), so the result could not be printed"
    ]


def test_a_closed_standard_output_is_one_line_and_exit_1_where_there_is_something_to_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = Terminal()
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", error)
    assert run(monkeypatch, lambda: print("result")) == 1
    assert error.getvalue() == "error: standard output is closed, so the result could not be printed\n"
    assert run(monkeypatch, lambda: None) == 0


def test_a_standard_error_that_takes_nothing_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (None, Full()):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys, "stdout", result := io.StringIO())
        assert run(monkeypatch, lambda: (terminal.tell("step 1"), print("result"))[1]) == 0
        assert result.getvalue() == "result\n"


def test_a_file_is_never_opened_in_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    program = (
        "import os, sys; from seqtrain import terminal\n"
        "with terminal.guarded(): file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); os.write(file, b'%d' % file)"
    )
    closed = ["bash", "-c", '"$@" <&- >&- 2>&-', "bash", sys.executable, "-c", program, str(tmp_path / "file")]
    subprocess.run(closed, check=True)
    assert int((tmp_path / "file").read_text()) > 2


def test_no_message_is_longer_than_300_characters_and_both_its_ends_are_kept() -> None:
    words = "x" * 1000
    (line,) = UserError(f"data.path={words}: no such file; give another one").lines
    assert len(f"error: {line}") == 300
    assert line.startswith("data.path=xxx")
    assert line.endswith("no such file; give another one")
    assert UserError("x" * MAX_LINE).lines == ("x" * MAX_LINE,)
    (line,) = UserError(f"/tmp/{'y' * 400}/config.yaml: is damaged").lines  # a path is told whole
    assert line.endswith("yyy/config.yaml: is damaged")
    assert " ... " not in line
