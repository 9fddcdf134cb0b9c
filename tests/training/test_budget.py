"""Laws of the budget: models of every kind are made to cost the same, or are refused in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from seqtrain.config import check
from seqtrain.data.batching.plan import TBPTT, Chunk
from seqtrain.errors import UserError
from seqtrain.experiment.start import Request, dry_run
from seqtrain.training import budget
from seqtrain.training.cost import ReadPattern, training_flops
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_pair
from seqtrain.training.session import cost_of
from seqtrain.training.splits import Data
from tests.support.examples import DATA, SMALL, files
from tests.support.model_cases import MODELS

PAIRS = (
    *(("next_token", model) for model in ("lstm", "cnn", "rnn", "gru", "min_gru")),
    *(("masked_lm", "bert"), ("masked_lm", "cbow"), ("sentiment", "lstm model.bidirectional=true")),
    *(("translation", "encoder_decoder"), ("translation", "rnn_encoder_decoder")),
)
NUMBERS = (4e5, 1e6, 3e6, 1e7)
LADDER = [
    *((*pair, number) for pair, number in zip(PAIRS, cycle(NUMBERS), strict=False)),
    *(("next_token", "gpt", number) for number in NUMBERS),
]
FREE = [word for word in SMALL if not word.startswith("model.")]  # the width is what is solved for

Made = Callable[..., tuple[DictConfig, Data]]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files(tmp_path_factory.mktemp("text"))


@cache
def read(task: str) -> tuple[DictConfig, Data]:
    """Tiny data of a task, which are the same for every model."""
    config = check.compose([f"task={task}", "tokenizer=byte", *DATA[task], *FREE]).config
    return config, make_data(config, ("train", "validation"), lambda line: None)


@pytest.fixture
def made(text: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Made:
    """The config, and the data, of a tiny run of a task and a model with a budget, and what else stands in words."""
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(text)

    def make(task: str, model: str, asked: str | list[str], *words: str) -> tuple[DictConfig, Data]:
        name, *options = model.split()
        config, data = read(task)
        config = config.copy()
        config.model = OmegaConf.load(MODELS / f"{name}.yaml")
        config.budget = asked
        config.merge_with_dotlist([*options, *words])
        budget.prepare(config)
        return config, data

    return make


def solve(config: DictConfig, data: Data) -> list[str]:
    """Solves for the budget; gives what is said."""
    lines: list[str] = []
    budget.solve(config, data, lines.append)
    return lines


def parameters(config: DictConfig, data: Data) -> int:
    """Numbers of the model and the head that a run of this config trains."""
    with torch.device("meta"):
        pair = make_pair(config, data.preprocessor, data.label_counts)
    return sum(weight.numel() for part in pair for weight in part.parameters())


@pytest.mark.long
@pytest.mark.parametrize(("task", "model", "number"), LADDER)
def test_every_model_gets_as_many_parameters_as_were_asked_for(
    task: str, model: str, number: float, made: Made
) -> None:
    config, data = made(task, model, f"params:{number}")
    layers = config.model.get("num_layers")
    lines = solve(config, data)
    found = parameters(config, data)
    assert found == pytest.approx(number, rel=0.01)
    assert config.model.get("num_layers") == layers
    assert len(lines) == 1
    assert f"model.dim={config.model.dim}," in lines[0]
    assert f"{found:,} parameters" in lines[0]


# The numbers that a width of 1 carries, and which widths there are.
STATES = {
    **{"rnn model.num_layers=2": (2, 1), "lstm": (2, 1), "min_gru model.num_layers=2": (2, 1)},
    "gpt model.num_layers=3 model.num_heads=3 model.attention_window=16": (3 * 2 * 16, 6),
}


@pytest.mark.parametrize("model", STATES)
def test_every_model_gets_a_state_of_the_size_that_was_asked_for(model: str, made: Made) -> None:
    each, grain = STATES[model]
    for times in (5, 20):
        config, data = made("next_token", model, f"state:{each * grain * times}")
        given = config.model.get("num_layers"), config.model.get("dim_feedforward")
        (line,) = solve(config, data)
        assert config.model.dim == grain * times
        found = cost_of(config, data).state
        assert found is not None
        assert found - each * grain * times in (0, 1)  # a cache counts the tokens in it
        assert (config.model.get("num_layers"), config.model.get("dim_feedforward")) == given
        assert line == f"budget: state {each * grain * times:g}: model.dim={grain * times}, {found:,} numbers of state"
        before = config.copy()
        assert solve(config, data) == [line]
        assert config == before


@pytest.mark.long
def test_what_is_solved_stays_when_it_is_solved_again(made: Made) -> None:
    config, data = made("next_token", "gpt", ["params:3e5", "flops:1e12"])
    lines = solve(config, data)
    assert config.model.dim_feedforward is not None, "a case in which the width alone is too coarse"
    before = config.copy()
    assert solve(config, data) == lines
    assert config == before


def test_an_inner_width_that_is_given_is_kept_where_only_another_one_would_meet_the_budget(made: Made) -> None:
    config, data = made(
        "next_token", "gpt model.num_layers=1 model.num_heads=8 model.dim_feedforward=100", "params:5e4"
    )
    with pytest.raises(UserError, match="no width comes within 1 %"):
        solve(config, data)
    assert config.model.dim_feedforward == 100


@pytest.mark.parametrize(
    ("task", "model"), [("next_token", "gpt"), ("next_token", "cnn"), ("translation", "encoder_decoder")]
)
def test_steps_are_as_many_as_the_operations_pay_for(task: str, model: str, made: Made) -> None:
    config, data = made(task, f"{model} model.dim=32", "flops:2e11")
    (line,) = solve(config, data)
    steps, plan = config.trainer.max_steps, data.plan("train")
    read = 0
    for step in range(steps):
        piece = plan.chunk(*divmod(step, plan.steps))
        read += int((piece.count if isinstance(piece, Chunk) else data.batcher("train").lengths[piece.examples]).sum())  # pyright: ignore[reportAttributeAccessIssue]
    assert plan.tokens_before(steps) == read
    each = cost_of(config, data).flops_per_token
    assert each * read == pytest.approx(2e11, rel=0.01)
    assert steps % plan.steps, "a case that ends within an epoch"
    assert f"trainer.max_steps={steps}, {each * read:.4g} FLOPs" in line


def test_what_is_read_in_pieces_costs_what_a_piece_sees_of_those_before(made: Made) -> None:
    config, data = made("sentiment", "gpt model.dim=32 model.attention_window=64", "seconds:1")
    costs = []
    for k2 in (4, config.data.max_length):
        tbptt = TBPTT(k1=k2, k2=k2, carry=False, reset="never")
        costs.append(cost_of(config, replace(data, tbptt=tbptt)))
    lengths = np.asarray(data.batcher("train").lengths)  # pyright: ignore[reportAttributeAccessIssue]
    model, task = make_pair(config, data.preprocessor, data.label_counts)
    share = float(lengths.clip(max=4).sum() / lengths.sum())
    given = 1 / float(lengths.mean())
    alone, carried = (training_flops(model, task, ReadPattern(4, carry, (), given, share)) for carry in (False, True))
    assert costs[0].flops_per_token == pytest.approx(carried, rel=0.01)
    assert carried > 1.1 * alone


def test_the_clock_decides_the_steps_of_a_budget_of_seconds(made: Made) -> None:
    config, data = made("next_token", "lstm model.dim=8", "seconds:7", "trainer.max_epochs=3")
    assert solve(config, data) == []
    assert (config.trainer.max_seconds, config.trainer.max_steps, config.trainer.max_epochs) == (7, None, None)
    cost = cost_of(config, data)
    assert (cost.steps, cost.flops) == (None, None)
    assert "as many as trainer.max_seconds allows" in "\n".join(cost.lines())


def test_a_budget_that_cannot_be_met_is_refused_in_one_line(made: Made) -> None:
    for asked, told in {
        "params:9": "budget=params:9: no width comes within 1 %: model.dim=1 makes",
        "params:1e15": "budget=params:1e+15: weights, gradients and moments take 16,000,000 GB",
        "state:3": "budget=state:3: no width comes within 1 %: model.dim=1 makes 2 numbers of state and model.dim=2",
        "state:1e9": "budget=state:1e+09: no width comes within 1 %: model.dim=131071 makes 262,142 numbers of state",
        "state:262144": "budget=state:262144: model.dim=131072: weights, gradients and moments take 2,",
        "flops:1e3": "budget=flops:1000: no number of steps comes within 1 %: 1 cost",
    }.items():
        with pytest.raises(UserError) as caught:
            solve(*made("next_token", "lstm", asked))
        (line,) = caught.value.lines
        assert line.startswith(told)


def test_sizes_between_which_there_is_none_are_named_and_can_be_asked_for(made: Made) -> None:
    with pytest.raises(UserError) as caught:
        solve(*made("next_token", "cnn", "params:40000"))
    below, above = (int(size.replace(",", "")) for size in re.findall(r"makes ([\d,]+)", caught.value.lines[0]))
    assert below < 40_000 < above
    for size in (below, above):
        config, data = made("next_token", "cnn", f"params:{size}")
        solve(config, data)
        assert parameters(config, data) == size


def test_a_dry_run_shows_the_solved_size(text: Path, made: Made, capfd: pytest.CaptureFixture[str]) -> None:
    overrides = ["tokenizer=byte", *DATA["next_token"], *FREE[1:], "model=gru", "budget=params:1e6"]
    cost = dry_run(check.compose(overrides), Request(overrides))
    assert cost.parameters["total"] == pytest.approx(1e6, rel=0.01)
    assert f"{cost.parameters['total']:,} parameters" in capfd.readouterr().err


def test_no_argument_comes_nearer_than_the_one_that_is_found() -> None:
    never_falling = [lambda x: x, lambda x: x * x, lambda x: x // 4 * 10, lambda x: 7]
    for function, most in product(never_falling, (1, 2, 20)):
        for number in range(-3, function(most) + 9):
            found = budget.closest(function, number, most)
            assert 1 <= found <= most
            assert abs(function(found) - number) == min(abs(function(x) - number) for x in range(1, most + 1))
