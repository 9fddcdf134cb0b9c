"""Signatures of models, layers and batching say their shapes; runs under jaxtyping's import hook check them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

import seqtrain.data.batching
import seqtrain.models
import seqtrain.tasks
from seqtrain.data.batching.examples import ExampleBatch, padded
from seqtrain.data.batching.masking import uniforms
from seqtrain.models.base import read_in_segments, read_warmup
from seqtrain.models.contract import LAWS, verdict_of
from seqtrain.models.decoding import continue_tokens, decode
from seqtrain.models.layers.attention import split_heads
from seqtrain.models.layers.recorder import recording
from seqtrain.models.layers.scan import scan
from tests.conftest import REPOSITORY
from tests.support.model_cases import Case, cases, next_token, some_tokens

PLUGIN = "tests.support.shape_checks"
IS_CHECKED = PLUGIN in sys.modules
FOLDERS = [Path(package.__path__[0]) for package in (seqtrain.models, seqtrain.data.batching, seqtrain.tasks)]
MODULES = sorted(module for folder in FOLDERS for module in folder.rglob("*.py"))
CHECKED = {
    "models read and generate": (
        "in_the_shapes or everything_else or a_wrong_shape",
        ("tests/models/test_shapes.py",),
    ),
    "batches are made": (
        "padding_is or checksum or shares_hold or share_without or small_integers or its_device or another_device "
        "or drawn_equally or alone_and_in_any_batch or lanes_that_start or lengths_are_the_same "
        "or holds_the_scaled_values",
        (
            *("tests/data/test_stream.py", "tests/data/test_masking.py", "tests/data/test_fingerprint.py"),
            *("tests/data/test_examples.py", "tests/training/test_jitter.py", "tests/data/test_vectors.py"),
        ),
    ),
    "tasks measure": (
        # Not what trains by a command: that is another process, in which nothing is checked.
        "(loss or accuracy or pooled or baseline or parts) and not confusion",
        (
            *("tests/tasks/test_next_token.py", "tests/tasks/test_masked_lm.py", "tests/tasks/test_sentiment.py"),
            "tests/tasks/test_translation.py",
        ),
    ),
}
"""What runs under the hook: names of tests, and their files."""
READINGS = {
    *("encoding_is_reading", "last_is_the_last", "directions_without_padding", "padding_changes_nothing"),
    *("reset_is_of_one_lane", "source_is_read_by_its_length", "every_weight_takes_part", "state_keeps_its_precision"),
}
"""Laws of the contract that read a model in each way; under the hook all of them take minutes."""


@pytest.mark.long
def test_shapes_hold_under_the_hook() -> None:
    """Run the chosen tests in one process, for most of the time is spent on imports; none may fail or be skipped."""
    chosen = " or ".join(f"({names})" for names, _ in CHECKED.values())
    files = [file for _, files in CHECKED.values() for file in files]
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", PLUGIN, "-q", "-x", "-p", "no:cacheprovider", "-k", chosen, *files],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
    )
    assert answer.returncode == 0, answer.stdout[-4000:]
    assert "skipped" not in answer.stdout


@pytest.mark.skipif(not IS_CHECKED, reason="only where shapes are checked")
def test_every_model_is_read_in_the_shapes_that_it_says() -> None:
    for case in (case for case in cases() if "share_layers" not in dict(case.options)):  # of the shapes of others
        owed = [law for law in LAWS if law.name in READINGS and law.promise in case.make().capabilities]
        for law in owed:
            assert verdict_of(law, case.subject()).counterexample is None, (str(case), law.name)


def test_everything_else_of_models_can_be_called() -> None:
    model, tokens = Case("gpt", ()).make(), some_tokens(2, 9)
    pieces = list(read_in_segments(model, tokens, torch.tensor([9, 4]), 3))
    assert sum(int(piece.lengths.sum()) for piece in pieces) == 13
    states = read_warmup(model, [(tokens[:, :4], None, None), (tokens[:, 4:], torch.tensor([True, False]), None)], None)
    assert len(states) == 3
    scores = partial(next_token(model).logits, model)
    assert len(list(continue_tokens(model, scores, [[1], [2, 3]], num_tokens=2, top_k=2, top_p=0.9))) == 2
    source = Case("rnn_encoder_decoder", ()).make()
    state = source.begin(tokens)
    for beam in (1, 2):
        assert len(decode(source, scores, state, start=0, end=6, max_tokens=torch.tensor([3, 4]), beam=beam)) == 2
    with recording() as maps:
        model(tokens)
    assert len(maps) == 2


@pytest.mark.skipif(not IS_CHECKED, reason="only where shapes are checked")
def test_a_wrong_shape_is_seen() -> None:
    x = torch.zeros(2, 3, 4)
    assert scan(x, x, x[:, 0]).shape == x.shape
    for wrong in (x[:1, 0], x[:, 0, :3], x):
        with pytest.raises(TypeCheckError):
            scan(x, x, wrong)
    with pytest.raises(TypeCheckError):
        split_heads(x.long(), 1, 2)


@pytest.mark.skipif(not IS_CHECKED, reason="only where shapes are checked")
def test_a_wrong_shape_of_a_batch_is_seen() -> None:
    tokens, lengths = padded([np.array([1, 2]), np.array([3])])
    batch = ExampleBatch(tokens=tokens, lengths=lengths, targets=lengths, index=lengths, count=3, totals={})
    for wrong in ({"lengths": lengths[:1]}, {"tokens": lengths}, {"index": lengths.float()}):
        with pytest.raises(TypeCheckError):
            replace(batch, **wrong)
    with pytest.raises(TypeCheckError):
        uniforms(0, 0, np.zeros((2, 2), dtype=np.int64), 0, 3)


def unshaped(module: Path) -> Iterator[str]:
    """Lines of a module that give or take a tensor without saying its shape."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            for annotation in filter(None, (*(each.annotation for each in arguments), node.returns)):
                if has_bare_tensor(annotation):
                    yield f"{module.name}:{annotation.lineno}: {ast.unparse(annotation)}"


def is_array(annotation: ast.AST) -> bool:
    return ast.unparse(annotation) in ("Tensor", "np.ndarray")


def has_bare_tensor(annotation: ast.AST) -> bool:
    """Whether a type holds `Tensor`, or `np.ndarray`, other than as `Float[Tensor, "B T D"]` and its like."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        first, *shape = annotation.slice.elts
        if is_array(first) and shape and isinstance(shape[0], ast.Constant):
            return False
    if is_array(annotation):
        return True
    return any(map(has_bare_tensor, ast.iter_child_nodes(annotation)))


def test_every_signature_says_the_shape_of_every_tensor() -> None:
    assert [line for module in MODULES for line in unshaped(module)] == []
    bare = ("Tensor", "tuple[Tensor, State]", "Callable[[Tensor], Float[Tensor, 'B']]", "tuple[np.ndarray, int]")
    shaped = ("Float[Tensor, 'B T D'] | None", "dict[str, Int[Tensor, ' B']]", "Int[np.ndarray, 'B T'] | None")
    found = [each for each in (*bare, *shaped) if has_bare_tensor(ast.parse(each, mode="eval").body)]
    assert found == list(bare), "a bare tensor is found, and nothing else"
