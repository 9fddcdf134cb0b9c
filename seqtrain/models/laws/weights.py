"""Laws of weights: what trains them, what they are first, and where chance comes in."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from seqtrain.models.base import SequenceModel
from seqtrain.models.laws.agreement import Broken, agree_in_bits
from seqtrain.models.laws.subject import LANES, Subject, law, num_tokens, some_tokens, starting


@law("Every weight that is trained takes part in the hidden states.")
def every_weight_takes_part(subject: Subject) -> None:
    """Check that each trainable weight gets a gradient from the sum of the hidden states."""
    model = subject.make()
    model(some_tokens(LANES, num_tokens(model)), starting(model, LANES))[0].sum().backward()
    # DistributedDataParallel stops at the second step where a weight got no gradient in the first.
    idle = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
    if idle:
        raise Broken(f"no gradient reaches {', '.join(idle)}")


@law("First weights are a function of the seed alone.")
def first_weights_follow_the_seed(subject: Subject) -> None:
    """Draw initial weights twice with one seed and once with another; compare them."""

    def drawn(seed: int) -> Float[Tensor, " N"]:
        return torch.cat([weight.detach().flatten() for weight in subject.draw(seed).parameters()])

    first = drawn(1)
    torch.rand(5)  # moves torch's generator on: what is drawn from it without a seed would differ now
    if not torch.equal(drawn(1), first):
        raise Broken("made twice with seed 1, it has other weights the second time")
    if torch.equal(drawn(2), first):
        raise Broken("made with seeds 1 and 2, it has the same weights")


@law("Chance, such as dropout, acts in training only, and follows torch's seed.")
def chance_acts_in_training_only(subject: Subject) -> None:
    """Compare readings in evaluation and in training, with equal and with different seeds."""
    model = subject.make() if subject.make_with_dropout is None else subject.make_with_dropout()
    tokens = some_tokens(LANES, 6)

    def read(model: SequenceModel, seed: int) -> Float[Tensor, "B T D"]:
        torch.manual_seed(seed)
        return model(tokens, starting(model, LANES))[0]

    agree_in_bits(read(model, 1), read(subject.make(), 2), "in evaluation, with dropout and without")
    model.train()
    # By torch's generators alone, since a run that is resumed restores those and no others.
    agree_in_bits(read(model, 1), read(model, 1), "in training, read twice with one seed")
    if subject.make_with_dropout is not None and torch.equal(read(model, 1), read(model, 2)):
        raise Broken("in training with dropout=0.5, two seeds give the same hidden states")
