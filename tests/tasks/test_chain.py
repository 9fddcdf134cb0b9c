"""Laws of the chain of labels: partition, gradients, best path and marginals are those of all paths, one by one."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch

from seqtrain.tasks.chain import Chain, pack
from seqtrain.tasks.metrics.labels import malformed

LABELS = {
    "names": ("N", "V", "X"),
    "BIO": ("O", "B-P", "I-P", "B-L", "I-L"),
    "BIOES": ("O", "B-P", "I-P", "E-P", "S-P"),
    "no single spans": ("B-P", "I-P", "E-P"),
}
LENGTHS = (4, 1, 0, 3)


def chain_of(labels: tuple[str, ...]) -> tuple[Chain, torch.Tensor, torch.Tensor]:
    """A chain with weights, and emissions of ragged lanes."""
    generator = torch.Generator().manual_seed(1)
    chain = Chain(labels).double()
    for weight in chain.parameters():
        weight.data.normal_(generator=generator)
    emissions = torch.randn(len(LENGTHS), max(LENGTHS), len(labels), generator=generator, dtype=torch.double)
    return chain, emissions, torch.tensor(LENGTHS)


def paths(chain: Chain, emissions: torch.Tensor, length: int) -> tuple[list[tuple[int, ...]], torch.Tensor]:
    """Every path of a lane and its score, added up step by step."""
    found = list(product(range(emissions.shape[1]), repeat=length))
    scores = []
    for path in found:
        score = chain.first[path[0]] + chain.last[path[-1]] + chain.barred[-1, path[0]]
        score = score + sum(emissions[word, label] for word, label in enumerate(path))
        for one, other in pairwise(path):
            score = score + chain.transitions[one, other] + chain.barred[one, other]
        scores.append(score)
    return found, torch.stack(scores)


@pytest.mark.parametrize("kind", LABELS)
def test_the_chain_is_the_enumeration_of_all_paths(kind: str) -> None:
    chain, emissions, lengths = chain_of(LABELS[kind])
    weights = [*chain.parameters()]
    ours, best = chain.log_partition(emissions, lengths), chain.best(emissions, lengths)
    marginals = chain.marginals(emissions, lengths)
    for lane, length in enumerate(LENGTHS):
        if not length:
            assert ours[lane] == 0
            continue
        found, scores = paths(chain, emissions[lane], length)
        theirs = scores.logsumexp(0)
        torch.testing.assert_close(ours[lane], theirs, rtol=0, atol=1e-10)
        gradients = torch.autograd.grad(ours[lane], weights, retain_graph=True)
        expected = torch.autograd.grad(theirs, weights, retain_graph=True, materialize_grads=True)
        for one, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
        assert tuple(best[lane, :length].tolist()) == found[int(scores.argmax())]
        table = torch.zeros(length, len(LABELS[kind]), dtype=torch.double)
        for path, share in zip(found, (scores - theirs).exp(), strict=True):
            table[range(length), path] += share
        torch.testing.assert_close(marginals[lane, :length], table, rtol=0, atol=1e-10)
        target = torch.tensor(found[int(scores.argmax())])
        loss = chain.loss(emissions[lane : lane + 1, :length], target[None], lengths[lane : lane + 1])
        torch.testing.assert_close(loss, theirs - scores.max(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["BIO", "BIOES"])
def test_no_path_goes_on_with_a_span_that_does_not_stand_before_it(kind: str) -> None:
    chain, emissions, lengths = chain_of(LABELS[kind])
    emissions[..., 2] += 20  # I-P, wherever it may be
    for lane, length in enumerate(LENGTHS):
        path = [LABELS[kind][place] for place in chain.best(emissions, lengths)[lane, :length].tolist()]
        assert malformed(path) == 0


def test_words_without_a_target_are_left_out_of_the_chain() -> None:
    order, lengths = pack(torch.tensor([[False, True, False, True], [False, False, True, False]]))
    assert lengths.tolist() == [2, 1]
    assert order[0].tolist() == [1, 3]
    assert order[1, 0] == 2
