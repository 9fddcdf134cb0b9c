"""One word for one thing: words that the house has given up do not come back as names."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from tests.conftest import REPOSITORY

RETIRED = {
    "chances": "probs, log_probs or uniforms",
    "misfit": "incompatibility",
    "uncut": "needs_whole",
    "Fault": "UserError",
    "Failed": "RunFailed",
    "Vocabularies": "Preprocessor",
    "vocabularies": "preprocessor",
    "vocabulary": "vocab_size",
    "Piece": "Segment",
    "Sums": "Accumulators",
    "Parts": "LossTerms",
    "Totals": "Reduced",
    "Carried": "CarriedState",
    "Sink": "RunLogger",
    "sink": "run_logger",
    "Arm": "Variant",
    "arm": "variant",
    "arms": "variants",
    "sitting": "attempt",
    "settle": "resolve_auto",
    "gathered": "all_gather",
    "cutter": "batcher",
    "tally": "update",
    "Dice": "SplitMix64",
    "silent": "without_targets",
}
"""What is written instead; `docs/concepts.md` has the words that are ours."""

OF_OTHERS = {"seqtrain/training/loggers/wandb_logger.py": {"silent"}}  # words of libraries

FILES = sorted((REPOSITORY / "seqtrain").rglob("*.py"))


def retired(text: str) -> set[str]:
    """The retired words among the names of a Python source."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME} & RETIRED.keys()


def test_no_name_is_a_retired_word() -> None:
    for path in FILES:
        name = str(path.relative_to(REPOSITORY))
        found = retired(path.read_text("utf-8")) - OF_OTHERS.get(name, set())
        assert {word: RETIRED[word] for word in found} == {}, name


UNCLEAR = ("What", "Whether", "How", "Where", "Why", "Which", "Of", "As")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def unclear(text: str) -> list[str]:
    """Return the first lines of docstrings that begin neither with a verb nor with a noun."""
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED))
    lines = ((ast.get_docstring(node) or "-").splitlines()[0] for node in nodes)
    return [line for line in lines if re.match(rf"({'|'.join(UNCLEAR)})\b", line)]


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    found = {str(path.relative_to(REPOSITORY)): unclear(path.read_text("utf-8")) for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == {}


KEYS = re.compile(r"\b(?:data\.lanes|model\.memory|model\.kernel|trainer\.clip|task\.rate|task\.vocabulary)\b")


def test_no_page_names_a_retired_key() -> None:
    for path in [*sorted((REPOSITORY / "docs").glob("*.md")), REPOSITORY / "README.md"]:
        if path.name not in ("notebook.md", "benchmarks.md"):  # what was measured stays as it was typed
            assert KEYS.findall(path.read_text("utf-8")) == [], path.name
