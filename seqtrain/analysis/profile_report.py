"""Report on the cost of models: by formula, as counted by torch, and as measured."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.analysis.measured import Measured, refuse_idle, written
from seqtrain.config.ranges import Range, check_number, check_numbers
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.experiment.start import Request, prepare, read_data
from seqtrain.runs import provenance

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.analysis.profile import Crossover, Fitted, Grid, Make, Profile
    from seqtrain.analysis.profile_memory import MemoryProfile
    from seqtrain.config.check import Composed
    from seqtrain.tasks.base import Say
    from seqtrain.training.cost import Cost

LENGTHS, DIMS = (256, 512, 1024, 2048), (384, 512, 768, 1024)
AT_DIM = 128
FEWEST = 3, "sizes; through two points every power fits"
MAX_SIZE = 2**17
SIZE = Range(1, MAX_SIZE, whole=True)
REPEATS = Range(1, 1000, whole=True)
THREADS = Range(1, 1024, whole=True)
VOCAB_SIZE = 256  # of the timed models; embedding look-ups are cheap at any size


def measured(
    overrides: Sequence[str],
    out: Path,
    *,
    multirun: bool = True,
    lengths: Sequence[int] = LENGTHS,
    dims: Sequence[int] = DIMS,
    at_dim: int | None = None,
    at_length: int = 16,
    repeats: int = 5,
    threads: int = 1,
    config_dirs: Sequence[Path] = (),
) -> Measured:
    """Profile models; write the record and its plots.

    Args:
        overrides: Overrides of the configuration.
        out: Folder of the record and the plots.
        multirun: Profile every combination of the comma-separated values.
        lengths: Lengths T of the grid, in tokens.
        dims: Widths d of the grid.
        at_dim: Width at which all lengths are measured. None: `model.dim` if given, else 128.
        at_length: Length, in tokens, at which all widths are measured.
        repeats: How often each size is timed.
        threads: Number of torch threads, for the whole process.
        config_dirs: Folders with the user's own configs.

    Raises:
        UserError: The caller can fix it.
    """
    from seqtrain.analysis.profile import Grid
    from seqtrain.config import check

    lengths = check_numbers("lengths", lengths, SIZE, *FEWEST)
    dims = check_numbers("dims", dims, SIZE, *FEWEST)
    check_number("at_dim", at_dim, SIZE)
    check_number("at_length", at_length, SIZE)
    check_number("repeats", repeats, REPEATS)
    check_number("threads", threads, THREADS)
    for word in overrides:
        if check.key_of(word) == "sweep":
            raise UserError(f"{word}: profile does not search; give the values themselves, such as -m model=rnn,lstm")
    refuse_idle(overrides, "results are written to --out, and nothing is trained")
    combinations = _combinations(overrides) if multirun else [tuple(overrides)]
    asked = {}
    for words in combinations:
        composed = check.compose(list(words), config_dirs)
        asked[_name(words, combinations)] = composed, Request(list(words), tuple(config_dirs))
    width = _width(at_dim, overrides, [composed.config for composed, _ in asked.values()])
    grid = Grid(lengths, dims, width, at_length, batch=2, dims_batch=24)
    return _profile(asked, grid, out, repeats, threads)


def _width(at_dim: int | None, overrides: Sequence[str], configs: Sequence[DictConfig]) -> int:
    """Return the width at which all lengths are measured: the same for all models, so that they are comparable."""
    from seqtrain.config.check import key_of

    typed = [word for word in overrides if key_of(word) == "model.dim"]
    if not typed:
        return at_dim or AT_DIM
    dims = {config.model.dim for config in configs}
    if len(dims) > 1:
        raise UserError(f"{typed[-1]}: all lengths are measured at one width; give one, and others as --dims D,D,D")
    (dim,) = dims
    if at_dim not in (None, dim):
        raise UserError(f"--at-dim {at_dim}: model.dim={dim} sets it too; leave one of them out")
    if dim > MAX_SIZE:
        raise UserError(f"model.dim={dim}: must be at most {MAX_SIZE:,} here")
    return dim


def _combinations(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every combination of the comma-separated values of the overrides."""
    choices = []
    for word in words:
        key, equals, values = word.partition("=")
        if not equals or values.startswith("["):
            choices.append([word])
        else:
            choices.append([f"{key}={value}" for value in values.split(",")])
    return list(itertools.product(*choices))


def _name(words: Sequence[str], among: Sequence[tuple[str, ...]]) -> str:
    """Return the name of a combination: its overrides, except those that all combinations share."""
    own = [word for word in words if not all(word in each for each in among)]
    name = " ".join(own or words) or "the default model"
    return name.removeprefix("model=")


def _profile(asked: dict[str, tuple[Composed, Request]], grid: Grid, out: Path, repeats: int, threads: int) -> Measured:
    import torch

    from seqtrain.analysis.profile import crossovers, measure

    # One by default: on a shared machine two threads would wait for each other.
    torch.set_num_threads(threads)
    # Check everything before reading data, and before minutes of measuring.
    makes = {}
    notes: list[str] = []  # printed after all data is read, since reading may still fail
    for name, (composed, request) in asked.items():
        notes += prepare(composed.config, request)
        # The timed models are made separately, with other widths and a small embedding.
        makes[name] = _maker(composed.config, name)
        _try_sizes(name, makes[name], grid)
    costs = {name: _cost(composed, notes.append) for name, (composed, _) in asked.items()}
    out.mkdir(parents=True, exist_ok=True)
    for line in dict.fromkeys([*notes, *_window_notes(asked)]):
        say(line)
    configs = {name: composed.config for name, (composed, _) in asked.items()}
    # Memory first, because it is shorter: an optimizer that cannot step then fails before minutes of timing.
    memory = [_memory(name, config, makes[name], grid) for name, config in configs.items()]
    profiles, peak = measure(makes, grid, repeats=repeats)
    found = crossovers(profiles, grid.at_dim)
    return _written(costs, profiles, memory, found, peak, grid, out, threads)


def _memory(name: str, config: DictConfig, make: Make, grid: Grid) -> MemoryProfile:
    """Return the memory of a training pass with the config's optimizer, on the device that a run would use."""
    import torch

    from seqtrain.analysis.profile_memory import measure_memory
    from seqtrain.config import instantiate
    from seqtrain.training.trainer import on_gpu

    device = torch.device("cuda" if on_gpu(config) else "cpu")
    return measure_memory(name, make, grid, instantiate.make(config.optimizer), device)


def _cost(composed: Composed, note: Say) -> Cost:
    """Return the cost of the training that the config describes, as `seqtrain train --dry-run` reports it."""
    from seqtrain.training.session import cost_of

    for line in composed.notes:
        note(line)
    return cost_of(composed.config, read_data(composed.config, note))


def _window_notes(asked: dict[str, tuple[Composed, Request]]) -> list[str]:
    lines = []
    for name, (composed, _) in asked.items():
        if "attention_window" in composed.config.model:
            lines.append(
                f"{name}: measured with model.attention_window as long as the text, so that its cost grows with T^2"
            )
    return lines


def _maker(config: DictConfig, name: str) -> Make:
    """Return a function that makes the config's model for a width and a length."""
    from seqtrain.models.base import SequenceModel
    from seqtrain.training.model_and_task import make_model

    if "dim" not in config.model:
        raise UserError(f"{name}: the model has no option dim, so it cannot be measured at several widths")

    def make(dim: int, length: int) -> SequenceModel:
        sized = config.copy()
        sized.model.dim = dim
        if "attention_window" in sized.model:
            sized.model.attention_window = length
        return make_model(sized, VOCAB_SIZE)

    return make


def _try_sizes(name: str, make: Make, grid: Grid) -> None:
    """Raise UserError if the model does not work at one of the sizes. Called before anything is timed."""
    from seqtrain.training.cost import OPTIMIZER_COPIES
    from seqtrain.training.model_and_task import on_meta

    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for size in grid.sizes():
        try:
            with on_meta():  # takes no memory
                model = make(size.dim, size.length)
        except (UserError, ValueError) as fault:
            raise UserError(f"{name} at d={size.dim}: {fault}; give other --dims or --at-dim") from None
        needed = OPTIMIZER_COPIES * sum(weight.numel() * weight.element_size() for weight in model.parameters())
        if needed > available:
            raise UserError(
                f"{name} at d={size.dim}: weights, gradients and the optimizer's states take "
                f"{needed / 2**30:,.0f} GiB, but this machine has {available / 2**30:,.0f}; give smaller --dims or "
                "--at-dim"
            )
        if model.max_length is not None and size.length > model.max_length:
            raise UserError(f"{name}: reads at most model.max_length={model.max_length} tokens; give shorter --lengths")


def _written(
    costs: dict[str, Cost],
    profiles: Sequence[Profile],
    memory: Sequence[MemoryProfile],
    found: Sequence[Crossover],
    peak: float,
    grid: Grid,
    out: Path,
    threads: int,
) -> Measured:
    """Write the record and the plots; return the result."""
    from seqtrain.analysis import profile_pictures
    from seqtrain.analysis.profile import pairs

    numbers: dict[str, float] = {"peak_gflops": peak / 1e9}
    for profile in (*profiles, *memory):
        numbers |= profile.numbers()
    for crossover in found:
        key = f"crossover_{crossover.recurrent}_{crossover.attending}"
        numbers |= {key: crossover.measured, f"{key}_counted": crossover.counted}
    record = {
        **provenance.environment(),
        "threads": threads,
        "grid": {**vars(grid)},
        "peak_flops_per_second": peak,
        "cost": {name: cost.record() for name, cost in costs.items()},
        "models": [profile.record() for profile in profiles],
        "memory": [profile.record() for profile in memory],
        "crossovers": [asdict(crossover) for crossover in found],
        "numbers": numbers,
    }
    pictures = profile_pictures.draw(profiles, memory, grid, out)
    lines: list[str] = []
    for profile, bytes_of in zip(profiles, memory, strict=True):
        lines += [*_lines(profile, costs[profile.name], grid), *bytes_of.lines(), ""]
    lines += _unclear_lines(fitted for profile in (*profiles, *memory) for fitted in profile.fits)
    lines += _end_lines(found, peak, grid, threads)
    if not pairs(profiles):
        lines.append(
            "no plot of a crossover: it needs a recurrent model and a model with attention, such as -m model=rnn,gpt"
        )
    return written(out, "profile", record, lines, list(pictures))


def _lines(profile: Profile, cost: Cost, grid: Grid) -> list[str]:
    """Return the lines about one model."""
    # The parameters are the same at every length.
    parts = profile.counted[0]["parameters"]
    lines = [
        f"== {profile.name}",
        *cost.lines(),
        f"by kind         {', '.join(f'{kind} {size:,}' for kind, size in parts.items()) or 'none'} "
        f"(core, d = {grid.at_dim})",
        "       T  parameters of attention  operations a token: formula, counted  sequential steps  longest path",
    ]
    for row in profile.counted:
        steps, path = _or_dash(row["sequential_steps"]), _path_words(row)
        operations = f"{row['flops']:18,.0f}, {row['counted_flops']:15,.0f}"
        lines.append(f"{row['length']:8,}  {row['attention_parameters']:23,}  {operations}  {steps:>16}  {path:>12}")
    if row["source_path"] is not None:
        cross = row["cross_attention_parameters"]
        lines.append(
            f"the model reads T source tokens and T target tokens; {cross:,} of the attention parameters are for "
            "cross-attention, the others for self-attention; paths end at the target's last token"
        )
    lines += _fit_lines(profile)
    lines.append(
        f"training reads {profile.tokens_per_second:,.0f} tokens/s at T = {grid.lengths[0]}, d = {grid.at_dim}; its "
        f"best rate is {profile.peak_share:.0%} of the highest FLOP/s measured on this machine"
    )
    return lines


def _fit_lines(profile: Profile) -> list[str]:
    """Return a table of how times grow."""
    # Work whose share of the pass is too small has no exponent.
    laws = [fitted.words() for fitted in profile.fits]
    width = max(map(len, laws), default=0)
    lines = [f"{'time of':22}  {'grows as':{width}}  theory  share of the forward pass"]
    for fitted, law in zip(profile.fits, laws, strict=True):
        lines.append(f"{fitted.kind:22}  {law:{width}}  {fitted.theory_words():6}  {fitted.share:.0%}")
    return lines


def _path_words(row: dict[str, Any]) -> str:
    """Return the longest path, or both paths of a model that reads a source and a target."""
    path = _or_dash(row["longest_path"])
    if row["source_path"] is None:
        return path
    return f"{row['source_path']:,} from the source, {path} in the target"


def _or_dash(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def _unclear_lines(fits: Iterable[Fitted]) -> list[str]:
    """Return a line that explains "no clear exponent", if it occurs."""
    from seqtrain.analysis.formula import CLEAR_ERROR

    if all(fitted.law is None or fitted.law.is_clear for fitted in fits):
        return []
    return [
        f"no clear exponent: the points do not lie on a line, so its slope is uncertain by more than {CLEAR_ERROR}; "
        "longer --lengths, wider --dims, or more --repeats on an idle machine may help"
    ]


def _end_lines(found: Sequence[Crossover], peak: float, grid: Grid, threads: int) -> list[str]:
    """Return the lines about the machine and the comparisons between models."""
    lines = [
        f"all times are on the CPU in float32, threads: {threads}; the highest rate was {peak / 1e9:.0f} GFLOP/s "
        "(over matrix products, timed between the other measurements, and all profiled models)"
    ]
    for crossover in found:
        guess = ""
        if not grid.lengths[0] <= crossover.measured <= grid.lengths[-1]:
            guess = ", extrapolated beyond the measured lengths"
        lines.append(
            f"one layer of attention's products takes longer than the recurrence of {crossover.recurrent} from T = "
            f"{crossover.measured:.0f} on{guess}; by count from T = {crossover.counted:.0f} (d = {grid.at_dim}, "
            f"{crossover.attending})"
        )
    return lines
