"""Signatures of models and layers say their shapes, and a run under jaxtyping's import hook checks them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

import seqtrain.models
from seqtrain.models.base import read_in_segments, read_warmup
from seqtrain.models.decoding import continue_tokens, decode
from seqtrain.models.layers.attention import heads
from seqtrain.models.layers.recorder import recording
from seqtrain.models.min_gru import scan
from tests.conftest import REPOSITORY
from tests.support.model_cases import Case, next_token, some_tokens

PLUGIN = "tests.support.shape_checks"
IS_CHECKED = PLUGIN in sys.modules
MODELS = Path(seqtrain.models.__path__[0])
RUN = ("tests/models/test_contract.py", "tests/models/test_shapes.py")
CHOSEN = "padding_changes_nothing or source_is_read_by_its_length or everything_else or a_wrong_shape"


def test_shapes_hold_where_models_read_and_generate() -> None:
    if IS_CHECKED:
        pytest.skip("this is that run")
    words = ("-p", PLUGIN, "-q", "-x", "-p", "no:cacheprovider", "-k", CHOSEN, *RUN)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
    )
    assert answer.returncode == 0, answer.stdout[-4000:]
    assert "skipped" not in answer.stdout


def test_everything_else_of_models_can_be_called() -> None:
    model, tokens = Case("gpt", ()).make(), some_tokens(2, 9)
    pieces = list(read_in_segments(model, tokens, torch.tensor([9, 4]), 3))
    assert sum(int(piece.lengths.sum()) for piece in pieces) == 13
    states = read_warmup(model, [(tokens[:, :4], None), (tokens[:, 4:], torch.tensor([True, False]))], None)
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
        heads(x.long(), 1, 2)


def unshaped(module: Path) -> Iterator[str]:
    """Lines of a module that give or take a tensor without saying its shape."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            for annotation in filter(None, (*(each.annotation for each in arguments), node.returns)):
                if has_bare_tensor(annotation):
                    yield f"{module.name}:{annotation.lineno}: {ast.unparse(annotation)}"


def has_bare_tensor(annotation: ast.AST) -> bool:
    """Whether a type holds `Tensor` other than as `Float[Tensor, "B T D"]` and its like."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        first, *shape = annotation.slice.elts
        if isinstance(first, ast.Name) and first.id == "Tensor" and shape and isinstance(shape[0], ast.Constant):
            return False
    if isinstance(annotation, ast.Name):
        return annotation.id == "Tensor"
    return any(map(has_bare_tensor, ast.iter_child_nodes(annotation)))


@pytest.mark.parametrize("module", sorted(MODELS.rglob("*.py")), ids=lambda path: path.stem)
def test_a_signature_says_the_shape_of_every_tensor(module: Path) -> None:
    assert list(unshaped(module)) == []


@pytest.mark.parametrize(
    ("annotation", "bare"),
    [
        ("Tensor", True),
        ("tuple[Tensor, State]", True),
        ("Callable[[Tensor], Float[Tensor, 'B']]", True),
        ("Float[Tensor, 'B T D'] | None", False),
        ("dict[str, Int[Tensor, ' B']]", False),
    ],
)
def test_a_bare_tensor_is_found(annotation: str, bare: bool) -> None:
    assert has_bare_tensor(ast.parse(annotation, mode="eval").body) == bare
