"""Laws of the numbers of a card: chunks and the whole, the CPU's, float32, bf16, fp16 and its scaler."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import Tensor

from seqtrain.models.base import Capability, SequenceModel, reset
from seqtrain.models.decoding import continue_tokens, decode
from seqtrain.models.layers import attention
from seqtrain.models.layers.joined import Joined
from seqtrain.training import trainer as trainers
from seqtrain.training.learner import Learner
from tests.gpu.conftest import accelerator, asked
from tests.support.model_cases import START, VOCABULARY, Case, assert_near, next_token
from tests.training import test_learner
from tests.training.test_learner import everything, fit

STATEFUL = ("rnn", "gru", "lstm", "min_gru", "cnn", "gpt")
CUTS = [5, 1, 9, 8]
LANES = 3


def read_in_chunks(model: SequenceModel, tokens: Tensor, cuts: list[int], renewed: Tensor) -> Tensor:
    """Hidden states of all tokens; lanes `renewed` begin anew in the middle, at a cut."""
    state, hidden = model.initial(len(tokens)), []
    begin = 0
    for size in cuts:
        if begin == tokens.shape[1] // 2:
            state = reset(state, renewed)
        out, state = model(tokens[:, begin : begin + size], state)
        hidden.append(out)
        begin += size
    return torch.cat(hidden, 1)


@asked("name", STATEFUL, cpu=("lstm", "gpt"))
def test_chunks_equal_the_whole_with_their_gradients(device: torch.device, name: str) -> None:
    model = Case(name, ()).make().to(device)
    assert Capability.STATEFUL in model.capabilities
    half = sum(CUTS)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (LANES, 2 * half), generator=generator).to(device)
    renewed = torch.tensor([False, True, False], device=device)
    found = []
    for cuts in ([half, half], [*CUTS, *reversed(CUTS)], [1] * (2 * half)):
        model.zero_grad()
        hidden = read_in_chunks(model, tokens, cuts, renewed)
        hidden.square().sum().backward()
        assert hidden.device.type == device.type
        gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        found.append({"hidden": hidden.detach(), **gradients})
    for other in found[1:]:
        assert_near(other, found[0], 1e-9)


def test_a_chunk_joined_with_its_window_in_bf16_is_near_the_mask_in_float64(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = 64
    monkeypatch.setattr(attention, "LEAST", length)
    before = torch.tensor([0, 7, 3 * length], device=device)  # of a lane that was reset, its first chunk, and later
    inputs = torch.randn(5, 3, 4, length, 32, generator=torch.Generator().manual_seed(0)).to(device)
    for lane in range(2):
        inputs[1:3, lane, :, : length - int(before[lane])] = 0

    def mixed(dtype: torch.dtype, window: Any) -> list[Tensor]:
        parts = inputs.to(dtype).requires_grad_()
        query, key, value = parts[0], torch.cat([parts[1], parts[3]], 2), torch.cat([parts[2], parts[4]], 2)
        if isinstance(window, Joined):
            found = window.attend(None, query, key, value, dropout=0.0)  # type: ignore[arg-type]
        else:
            found = attention.attend(query, key, value, mask=window, causal=False, dropout=0.0, name="any")
        return [found.double(), *torch.autograd.grad(found.square().sum(), parts)]

    joined = attention.window_of(before, length, length, length)
    assert isinstance(joined, Joined)
    for one, other in zip(mixed(torch.bfloat16, joined), mixed(torch.float64, joined.mask()), strict=True):
        assert float((one - other).norm()) < 0.02 * float(other.norm())


RESETS = [*((name, "never") for name in STATEFUL), ("lstm", "document"), ("gpt", "document")]


@asked("name,reset", RESETS, cpu=[("gpt", "document")])
def test_training_gives_the_numbers_of_the_cpu(device: torch.device, name: str, reset: Any, tmp_path: Path) -> None:
    ours = everything(fit(Case(name, ()).make(), tmp_path, reset=reset, accelerator=accelerator(device)))
    cpu = everything(fit(Case(name, ()).make(), tmp_path, reset=reset, accelerator="cpu"))
    for key in ("weights", "carried", "sums"):
        assert_near(on_cpu(ours[key]), cpu[key], 1e-7)


def on_cpu(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: on_cpu(value) for key, value in tree.items()}
    return tree.cpu() if isinstance(tree, Tensor) else tree


def losses_of(name: str, folder: Path, device: torch.device, **options: Any) -> list[float]:
    """The mean loss of each of ten steps."""

    class Losses(Callback):
        def __init__(self) -> None:
            self.found: list[float] = []

        def on_train_batch_end(self, trainer: Trainer, pl_module: Learner, *rest: Any) -> None:  # type: ignore[override]
            ((total, count),) = pl_module.sums.read().values()
            pl_module.sums.terms = {}
            self.found.append(float(total) / count)  # type: ignore[arg-type]

    losses = Losses()
    fit(Case(name, ()).make().float(), folder, losses, accelerator=accelerator(device), **options)
    return losses.found


# TF32, which cuDNN would use by itself, has ten bits: it is off by 1e-3.
TOLERANCES = {"32-true": 2e-5, "bf16-mixed": 0.05, "16-mixed": 0.01}


@pytest.mark.parametrize("precision", TOLERANCES)
@asked("name", ["lstm", "gpt", "cnn"], cpu=["gpt"])  # torch has no LSTM in fp16 on a CPU
def test_a_precision_is_what_it_says(
    device: torch.device, name: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if precision == "16-mixed" and device.type == "cpu":
        use_fp16_scaler(monkeypatch)
    exact = losses_of(name, tmp_path, device, precision="64-true")
    found = losses_of(name, tmp_path, device, precision=precision)
    for step, (one, other) in enumerate(zip(found, exact, strict=True)):
        assert abs(one - other) < TOLERANCES[precision] * other, (step, one, other)


def use_fp16_scaler(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Gives trainers of `16-mixed` torch's own scaler of this device; on a CPU Lightning would make it bf16."""
    make = trainers.make_trainer

    def with_scaler(chosen: Any, *args: Any) -> Trainer:
        trainer = make(chosen, *args)
        if chosen.precision == "16-mixed":
            kind = trainer.strategy.root_device.type
            scaler = torch.amp.GradScaler(kind, **options)
            trainer.strategy.precision_plugin = MixedPrecision("16-mixed", kind, scaler)
        return trainer

    monkeypatch.setattr(trainers, "make_trainer", with_scaler)


class Norms(Callback):
    """Notes the gradient's norm of each update, and the scale behind it."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.scales: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Learner, *rest: Any) -> None:  # type: ignore[override]
        assert pl_module.progress.gradient_norm is not None
        self.norms.append(float(pl_module.progress.gradient_norm))
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self.scales.append(1.0 if scaler is None else scaler.get_scale())


@pytest.mark.parametrize("fused", [True, False])
def test_in_fp16_it_is_the_gradient_that_is_clipped_and_not_its_multiple(
    device: torch.device, fused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_optimizer(monkeypatch, fused=fused)
    use_fp16_scaler(monkeypatch, init_scale=2.0**10)
    exact, half = Norms(), Norms()
    for precision, norms in (("32-true", exact), ("16-mixed", half)):
        fit(
            Case("gpt", ()).make().float(),
            tmp_path,
            norms,
            accelerator=accelerator(device),
            precision=precision,
            grad_clip=1e-3,
        )
    assert half.norms == pytest.approx(exact.norms, rel=0.05)


def use_optimizer(monkeypatch: pytest.MonkeyPatch, *, fused: bool) -> None:
    monkeypatch.setattr(test_learner, "ADAMW", partial(torch.optim.AdamW, lr=0.01, fused=fused))


@pytest.mark.parametrize("on_nonfinite", ["stop", "skip"])
def test_an_update_that_fp16_cannot_hold_is_left_out_and_scaled_less(
    device: torch.device, on_nonfinite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_optimizer(monkeypatch, fused=True)
    use_fp16_scaler(monkeypatch, init_scale=2.0**40)
    make = test_learner.make_learner

    def with_choice(*args: Any) -> Learner:
        learner = make(*args)
        learner.on_nonfinite = on_nonfinite  # type: ignore[assignment]
        return learner

    monkeypatch.setattr(test_learner, "make_learner", with_choice)
    seen: list[float] = []

    class Scales(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: Learner, *rest: Any) -> None:  # type: ignore[override]
            seen.append(trainer.precision_plugin.scaler.get_scale())  # type: ignore[union-attr]

    model = Case("gpt", ()).make().float()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    learner = fit(
        model,
        tmp_path,
        Scales(),
        accelerator=accelerator(device),
        precision="16-mixed",
    )
    assert seen == [2.0 ** (39 - step) for step in range(10)]  # each was too large, and the next half of it
    assert_near(on_cpu(dict(learner.model.state_dict())), before, 0)
    assert math.isfinite(learner.sums_of_clipping.plain()[2])
    assert learner.progress.skipped == (10 if on_nonfinite == "skip" else 0)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_in_bf16_the_carried_state_and_the_weights_stay_float32(
    device: torch.device, name: str, tmp_path: Path
) -> None:
    model = Case(name, ()).make().float()
    learner = fit(model, tmp_path, accelerator=accelerator(device), precision="bf16-mixed")
    for value in (*learner.model.state_dict().values(), *everything(learner)["carried"].values()):
        assert value.dtype in (torch.float32, torch.long)


@asked("name", ["lstm", "gpt"], cpu=["gpt"])
def test_what_is_written_is_what_the_cpu_writes(device: torch.device, name: str) -> None:
    prompts = [[START, 1, 2], [START], [START, 3, 1, 4, 2]]
    written = []
    for place in (torch.device("cpu"), device):
        model = Case(name, ()).make().to(place)
        task = next_token(model)

        def logits(hidden: Tensor, model: SequenceModel = model, task: Any = task) -> Tensor:
            return task.logits(model, hidden)

        drawn = {}
        for temperature in (0.0, 1.0):
            steps = continue_tokens(model, logits, prompts, num_tokens=12, temperature=temperature, seed=5)
            drawn[temperature] = torch.stack(list(steps), 1).tolist()
        written.append(drawn)
    assert written[0] == written[1]


@pytest.mark.parametrize("beam", [1, 4])
@asked("name", ["encoder_decoder", "rnn_encoder_decoder"], cpu=["encoder_decoder"])
def test_a_translation_is_that_of_the_cpu(device: torch.device, name: str, beam: int) -> None:
    found = []
    for place in (torch.device("cpu"), device):
        model = Case(name, ()).make().to(place)
        weight = dict(model.named_parameters())["embed.weight"][: VOCABULARY + 1]
        source = torch.tensor([[1, 2, 3, 4], [4, 3, 0, 0]], device=place)
        state = model.begin(source, torch.tensor([4, 2], device=place))
        with torch.no_grad():
            answers = decode(
                model,
                lambda hidden, weight=weight: hidden @ weight.T,
                state,
                start=START,
                end=VOCABULARY,
                max_tokens=torch.tensor([8, 5], device=place),
                beam=beam,
            )
        found.append(answers)
    assert found[0] == found[1]
