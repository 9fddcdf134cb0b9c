"""`seqtrain gradients`: measure how far back the gradient of a loss reaches, by layer, trained and untrained."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.cli.arguments import Parser, bounded
from seqtrain.cli.measured import OF_RUNS, Measured, refuse_idle, written
from seqtrain.config.ranges import Range
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.experiment.start import Request, prepare, read_data

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.models.base import SequenceModel
    from seqtrain.tasks.base import Say, Task
    from seqtrain.training.splits import Data

MAX_DISTANCE = 4096
MAX_SAMPLES = 4096
IDLE = (*OF_RUNS, "trainer", "optimizer", "schedule", "layer_decay", "freeze")
MAX_RADII = 4  # that a line names; of more, as of several layers, it gives the range


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    return measured(argv).tell()


def measured(argv: list[str]) -> Measured:
    """Measure the gradients and return the result, which `main` prints."""
    parser = Parser(
        "gradients",
        "Measure the norm of d loss_t / d x_(t-j) over the distance j on validation data, through the reading of\n"
        "training: its chunks, its warm-up, its resets. Of a run: trained, and with its first weights drawn anew. Of\n"
        "overrides (model=rnn tbptt.k2=20): untrained.",
        "seqtrain gradients model=rnn tbptt.k2=20",
    )
    parser.add_argument("of", nargs="+", metavar="RUN|OVERRIDE")
    parser.add_argument("--checkpoint", choices=("best", "last"), help="of a run (default: best)")
    parser.add_argument(
        "--whole", action="store_true", help="the model itself, without the cut of training: how far it could learn"
    )
    parser.add_argument(
        "--distance",
        type=bounded(Range(1, MAX_DISTANCE, whole=True)),
        metavar="TOKENS",
        help="the farthest distance (default: past k2)",
    )
    parser.add_argument(
        "--samples",
        type=bounded(Range(1, MAX_SAMPLES, whole=True)),
        default=32,
        metavar="N",
        help="losses in each lane, or example (default: 32)",
    )
    parser.add_config_dir()
    parser.add_out("outputs/gradients")
    options = parser.parse_intermixed_args(argv)
    is_run = "=" not in options.of[0]
    if is_run and len(options.of) > 1:
        raise UserError(f"{options.of[1]}: one run is measured at a time, as it was trained; leave it out")
    if not is_run:
        for word in options.of:
            if "=" not in word:
                raise UserError(f"{word}: is no override; give either one run, or overrides such as model=rnn")
        if options.checkpoint is not None:
            raise UserError(f"--checkpoint {options.checkpoint}: is of a run, and overrides have none; leave it out")
    return _measure(options, is_run)


def _measure(options: Namespace, is_run: bool) -> Measured:
    notes: list[str] = []  # said when nothing can be refused any more
    if is_run:
        from seqtrain.analysis.gradients import open_subject

        config, data, made = open_subject(options.of[0], options.checkpoint or "best", notes.append)
    else:
        config, data, made = _of_overrides(options.of, options.config_dir, notes.append)

    from seqtrain.analysis import gradient_decay, gradients
    from seqtrain.experiment.written_config import plain_config

    model, task = made["untrained"]
    wanted = gradients.Options(options.distance, options.samples, options.whole)
    subject = gradients.subject_of(data, task, model, wanted)
    options.out.mkdir(parents=True, exist_ok=True)
    for line in notes:
        say(line)
    found = gradients.measure_all(subject, made, options.samples)
    records = {}
    for name, (measured, decay) in found.items():
        records[name] = gradients.record_of(measured, decay, made[name][0])
    numbers = gradients.flat_numbers(records, subject.cut)
    lines = _lines(records, found, subject.cut)
    if subject.cut is not None and subject.can_be_whole:
        lines[-1] += "; --whole measures the model itself"
    record = {
        "measured": list(options.of),
        "whole": options.whole,
        "k1": data.tbptt.k1,
        "k2": data.tbptt.k2,
        "numbers": numbers,
        "models": records,
        "config": plain_config(config),
    }
    title = f"How far gradients reach: {' '.join(options.of)}"
    gradient_decay.draw(options.out / "gradients.png", found, subject.cut, title)
    return written(options.out, "gradients", record, lines, ["gradients.png"], options)


def _of_overrides(
    overrides: Sequence[str], config_dirs: Sequence[Path], note: Say
) -> tuple[DictConfig, Data, dict[str, tuple[SequenceModel, Task]]]:
    """Compose a config from overrides; return it with its data and its untrained model."""
    from seqtrain.config import check

    check.refuse_several(overrides, "one model is measured at a time; give one value, and call once for each")
    refuse_idle(overrides, "gradients of the first weights are measured, on the CPU, and nothing is trained", IDLE)
    refuse_idle(overrides, "the first weights are drawn; measure the run itself: seqtrain gradients RUN", ["init_from"])
    composed = check.compose(list(overrides), config_dirs)
    config = composed.config
    prepare(config, Request(list(overrides), tuple(config_dirs)))

    from seqtrain.analysis.gradients import check_task
    from seqtrain.training.model_and_task import make_pair

    check_task(config)
    for line in composed.notes:
        note(line)
    data = read_data(config, note)
    pair = make_pair(config, data.preprocessor, data.label_counts)
    return config, data, {"untrained": pair}


def _lines(records: dict[str, dict[str, Any]], found: dict[str, Any], cut: int | None) -> list[str]:
    """Return the lines to print: a table of norms, and a line for each model."""
    from seqtrain.analysis.gradients import decay_behind, decay_words

    # The input alone: the picture has every layer.
    one = next(iter(found.values()))[0]
    behind = "; below 0: behind it" if one.distances[0] < 0 else ""
    lines = ["mean norm of d loss_t / d x_(t-j) over sampled losses"]
    lines.append(f"j: {one.unit}s back from {one.origin} (0){behind}")
    lines.append(f"{'j':>8}" + "".join(f"{name:>14}" for name in records))
    first = next(iter(records.values()))
    # With a cut the two may differ much: a chunk of 20 holds one in five of the pairs at distance 16.
    shares = None if cut is None else first["share_with_path"]
    if shares is not None:
        lines[-1] += f"{'with a path':>14}"
    shown = [place for place, at in enumerate(first["distance"]) if _is_shown(at, cut)]
    for place in shown:
        cells = []
        for record in records.values():
            norm = record["norm"][0][place]
            cells.append(f"{'-' if norm is None else f'{norm:.3g}':>14}")
        if shares is not None:
            cells.append(f"{'-' if shares[place] is None else f'{shares[place]:.0%}':>14}")
        lines.append(f"{first['distance'][place]:>8}" + "".join(cells))
    if shares is not None:
        lines.append("a pair without a path, which the cut takes apart, counts above as 0; below it counts for nothing")
    for name, (measured, decay) in found.items():
        lines.append(f"{name}: {decay_words(decay, measured.unit)}")
        after = decay_behind(measured)
        if after is not None:
            lines.append(f"  behind the target: {decay_words(after, measured.unit)}")
        if measured.left_out:
            names = ", ".join(measured.left_out)
            lines.append(f"  layers left out, which are given their positions in another order: {names}")
        if decay.start:
            lines.append("  the target itself is not seen: half-life and start are counted from j = 1")
        # Only what is recurrent has one.
        radii = records[name]["spectral_radius"]
        if len(radii) > MAX_RADII:
            least, most = min(radii.values()), max(radii.values())
            lines.append(f"  spectral radii of {len(radii)} recurrent weights: {least:.3f} to {most:.3f}")
        elif radii:
            words = ", ".join(f"{weight} {radius:.3f}" for weight, radius in radii.items())
            lines.append(f"  spectral radius of recurrent weights: {words}")
    if cut is not None:
        lines.append(_cut_words(records, cut))
    return lines


def _is_shown(at: int, cut: int | None) -> bool:
    """Return True for distances that are powers of two, and for those around the cut."""
    size = abs(at)
    return size & (size - 1) == 0 or (cut is not None and cut - 1 <= size <= cut)


def _cut_words(records: dict[str, dict[str, Any]], cut: int) -> str:
    """Return a sentence that says if every gradient beyond the cut is exactly 0."""
    largest, count = 0.0, 0
    for record in records.values():
        for row in record["norm"]:
            for at, norm in zip(record["distance"], row, strict=True):
                if abs(at) >= cut and norm is not None:
                    largest, count = max(largest, norm), count + 1
    if not count:
        return f"k2 = {cut}: nothing was measured beyond it; give a larger --distance"
    if largest:
        return f"k2 = {cut}: the gradient beyond it is up to {largest:.3g}, and not 0"
    return f"k2 = {cut}: beyond it every gradient is exactly 0"
