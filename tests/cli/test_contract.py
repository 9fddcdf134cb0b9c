"""Laws of `seqtrain contract`: a model of a stranger is held to its promises; every bad word is one line."""

from __future__ import annotations

import json
from pathlib import Path

from seqtrain.models.contract import LAWS
from tests.conftest import Seqtrain
from tests.support import user

MINE = ("contract", *user.OPTIONS, *user.TRUST)
LEAKS = ("torch.stack(steps, 1) *", "torch.stack(steps, 1).cumsum(1).flip(1) *")
"""What makes the user's model look ahead."""


def changed(folder: Path, *change: str) -> dict[str, str | None]:
    """The user's package, with one thing written otherwise; gives the environment that finds it."""
    environment = user.package(folder)
    module = folder / "my_package" / "mine.py"
    if change:
        assert change[0] in module.read_text()
        module.write_text(module.read_text().replace(*change))
    return {**environment}


def test_a_users_model_that_keeps_its_promises_ends_with_0(seqtrain: Seqtrain, tmp_path: Path) -> None:
    answer = seqtrain(*MINE, cwd=tmp_path, env=changed(tmp_path))
    assert answer.rc == 0, answer.out + answer.err
    first, *laws, total = answer.out.splitlines()
    assert first == "model=mine with dim=8, in float64, promises CAUSAL, STATEFUL, UNCONDITIONAL"
    assert len(laws) == len(LAWS)
    assert "not promised   A different source leads to different hidden states. (CONDITIONAL)" in laws
    assert "holds          Chunks with carried state equal the whole." in laws
    assert total.startswith("holds: ")
    assert "does not hold: 0" in total
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my_configs", "my_package"], "nothing is written"


def test_a_broken_promise_ends_with_1_and_its_counterexample(seqtrain: Seqtrain, tmp_path: Path) -> None:
    answer = seqtrain(*MINE, cwd=tmp_path, env=changed(tmp_path, *LEAKS))
    assert (answer.rc, answer.err) == (1, "")
    lines = answer.out.splitlines()
    found = lines.index("does not hold  A hidden state depends on its own token, and on no later one.")
    assert "from position 1 on: earlier hidden states: lane 0, position 0, unit 0: " in lines[found + 1]
    assert lines[found + 1].endswith("shape (3, 1, 8)")


def test_as_json_each_law_is_an_object_of_a_line(seqtrain: Seqtrain, tmp_path: Path) -> None:
    answer = seqtrain(*MINE, "--json", cwd=tmp_path, env=changed(tmp_path, *LEAKS))
    assert answer.rc == 1
    records = [json.loads(line) for line in answer.out.splitlines()]
    assert [record["law"] for record in records] == [law.name for law in LAWS]
    found = {record["law"]: record for record in records}
    assert found["no_token_sees_a_later_one"]["status"] == "does not hold"
    assert found["no_token_sees_a_later_one"]["promise"] == ["CAUSAL"]
    assert found["source_matters"] == {
        "law": "source_matters",
        "sentence": "A different source leads to different hidden states.",
        "promise": ["CONDITIONAL"],
        "status": "not promised",
        "counterexample": None,
    }
    broken = {record["law"] for record in records if record["counterexample"] is not None}
    assert broken == {record["law"] for record in records if record["status"] == "does not hold"}


CHANGES = {
    # what is written otherwise: what the one line says
    ("    capabilities = ", "    others = "): "model=mine: does not declare its promises; set `capabilities`",
    ("def initial(", "def first("): "cannot be made: TypeError: Can't instantiate abstract class Mine",
    ("torch.ones(dim)", "torch.ones(dim / 3)"): "model=mine: cannot be made: TypeError: ones()",
    ("super().__init__()", "raise ValueError(f'{dim=} is odd')"): "(made small, with model.dim=8; override what",
    ("self.read = 0", "self.read, self.max_length = 0, 4"): "model.max_length=4: too short for the laws; give 16",
    ("import torch\n", "import torsch\n"): "cannot be imported: No module named 'torsch'",
}
OPTIONS = {
    user.OPTIONS: "not a target that may run; if you trust the code of my_package, add --trust my_package",
    (*user.TRUST, "model=mine"): "model=mine: no such model",
    (*MINE[1:], "trainer.max_steps=3"): "trainer.max_steps=3: has no effect, since nothing",
    (*MINE[1:], "optimizer=sgd"): "optimizer=sgd: has no effect, since nothing is trained",
    (*MINE[1:], "model.dimm=4"): "model=mine has no option dimm; did you mean dim?",
    (*user.TRUST, "--config-dir", "nowhere", "model=mine"): "--config-dir nowhere: no such folder",
}


def test_a_model_that_cannot_be_asked_is_one_line(seqtrain: Seqtrain, tmp_path: Path) -> None:
    cases = [(change, MINE[1:], says) for change, says in CHANGES.items()]
    cases += [((), options, says) for options, says in OPTIONS.items()]
    for number, (change, options, says) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        answer = seqtrain("contract", *options, cwd=folder, env=changed(folder, *change))
        assert (answer.rc, answer.out) == (2, ""), says
        (line,) = answer.err.splitlines()
        assert line.startswith("error: ")
        assert says in line


def test_a_model_that_leaves_the_process_is_no_model_that_keeps_its_promises(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    leaves = ("        hidden = state", "        raise SystemExit(0)\n        hidden = state")
    answer = seqtrain(*MINE, cwd=tmp_path, env=changed(tmp_path, *leaves))
    assert answer.rc == 1, answer.out
    assert "raises SystemExit: 0 (mine.py, line " in answer.out
    (tmp_path / "other").mkdir()
    environment = changed(tmp_path / "other", "super().__init__()", "raise SystemExit(0)")
    at_once = seqtrain(*MINE, cwd=tmp_path / "other", env=environment)
    assert (at_once.rc, at_once.out) == (1, "")
    assert "mine.py, line " in at_once.err
    assert "has left the process (SystemExit: 0)" in at_once.err


def test_a_model_without_a_width_is_one_line(seqtrain: Seqtrain, tmp_path: Path) -> None:
    environment = changed(tmp_path, "dim: int, ", "width: int = 4, ")
    (tmp_path / "my_configs" / "model" / "mine.yaml").write_text(user.CONFIG.replace("dim: 16", "width: 16"))
    answer = seqtrain(*MINE, cwd=tmp_path, env=environment)
    assert answer.rc == 2
    assert answer.err.endswith("model=mine: has no option dim, the width of its front end; add it\n")
