"""The bag of words: a mean, blind to order to the last bit."""

from __future__ import annotations

import torch

from tests.support.model_cases import Case, assert_near, some_tokens


def test_every_hidden_state_is_the_mean_of_the_embeddings_of_the_real_tokens() -> None:
    model, tokens, lengths = Case("cbow", ()).make(), some_tokens(3, 9), [9, 4, 0]
    hidden = model(tokens, None, torch.tensor(lengths))[0]
    for lane, length in enumerate(lengths):
        mean = sum((model.embed(token) for token in tokens[lane, :length]), torch.zeros(model.dim).double())
        assert_near(hidden[lane], (mean / max(length, 1)).expand(9, -1), 1e-12)


def test_equal_bags_have_hidden_states_equal_bit_for_bit() -> None:
    model = Case("cbow", ()).make().float()
    tokens, padding = some_tokens(1, 200, seed=1).expand(20, -1), some_tokens(20, 30, seed=2)
    shuffled = torch.stack([lane[torch.randperm(200)] for lane in tokens])
    hidden = model(torch.cat([shuffled, padding], 1), None, torch.full((20,), 200))[0]
    assert (hidden == hidden[0, 0]).all()
    assert (model(shuffled)[0] == model(tokens)[0]).all()
