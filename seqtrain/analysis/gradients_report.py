"""Report on the reach of gradients, for a run (trained and untrained) or for overrides (untrained)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.analysis.measured import OF_RUNS, Measured, refuse_idle, written
from seqtrain.config.ranges import Range, check_number
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.experiment.start import Request, prepare, read_data

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.models.base import SequenceModel
    from seqtrain.tasks.base import Say, Task
    from seqtrain.training.splits import Data

DISTANCE = Range(1, 4096, whole=True)
SAMPLES = Range(1, 4096, whole=True)
IDLE = (*OF_RUNS, "trainer", "optimizer", "schedule", "layer_decay", "freeze")
MAX_RADII = 4  # largest number listed on a line; for more, the line gives their range


def measured(
    of: Sequence[str],
    out: Path,
    *,
    checkpoint: str | None = None,
    whole: bool = False,
    distance: int | None = None,
    samples: int = 32,
    config_dirs: Sequence[Path] = (),
) -> Measured:
    """Measure how far back gradients reach; write the record and its plot.

    Args:
        of: One run, or overrides of one configuration.
        out: Folder of the record and the plot.
        checkpoint: Checkpoint of a run, "best" or "last". None: the best.
        whole: Measure the model itself, without the truncation of training.
        distance: Largest distance, in tokens. None: beyond k2, as far as is cheap.
        samples: Losses per lane or example.
        config_dirs: Folders with the user's own configs.

    Raises:
        UserError: The caller can fix it.
    """
    check_number("distance", distance, DISTANCE)
    check_number("samples", samples, SAMPLES)
    is_run = "=" not in of[0]
    if is_run and len(of) > 1:
        raise UserError(f"{of[1]}: one run is measured at a time, without overrides; leave it out")
    if not is_run:
        for word in of:
            if "=" not in word:
                raise UserError(f"{word}: not an override; give either one run, or overrides such as model=rnn")
        if checkpoint is not None:
            raise UserError(f"--checkpoint {checkpoint}: needs a run, but overrides are given; leave it out")
    notes: list[str] = []  # printed after all checks have passed
    if is_run:
        from seqtrain.analysis.gradients import open_subject

        config, data, made = open_subject(of[0], checkpoint or "best", notes.append)
    else:
        config, data, made = _of_overrides(of, config_dirs, notes.append)

    from seqtrain.analysis import gradient_decay, gradients
    from seqtrain.experiment.written_config import plain_config

    model, task = made["untrained"]
    wanted = gradients.Options(distance, samples, whole)
    subject = gradients.subject_of(data, task, model, wanted)
    out.mkdir(parents=True, exist_ok=True)
    for line in notes:
        say(line)
    found = gradients.measure_all(subject, made, samples)
    records = {}
    for name, (measured, decay) in found.items():
        records[name] = gradients.record_of(measured, decay, made[name][0])
    numbers = gradients.flat_numbers(records, subject.cut)
    lines = _lines(records, found, subject.cut)
    if subject.cut is not None and subject.can_be_whole:
        lines[-1] += "; --whole measures the model itself"
    record = {
        "measured": list(of),
        "whole": whole,
        "k1": data.tbptt.k1,
        "k2": data.tbptt.k2,
        "numbers": numbers,
        "models": records,
        "config": plain_config(config),
    }
    title = f"How far gradients reach: {' '.join(of)}"
    gradient_decay.draw(out / "gradients.png", found, subject.cut, title)
    return written(out, "gradients", record, lines, ["gradients.png"])


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

    # Only the embedded input: the plot shows all layers.
    one = next(iter(found.values()))[0]
    behind = "; below 0: behind it" if one.distances[0] < 0 else ""
    lines = ["mean norm of d loss_t / d x_(t-j) over sampled losses"]
    lines.append(f"j: {one.unit}s back from {one.origin} (0){behind}")
    lines.append(f"{'j':>8}" + "".join(f"{name:>14}" for name in records))
    first = next(iter(records.values()))
    # With a cut the two means may differ much: a chunk of 20 contains one in five of the pairs at distance 16.
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
        lines.append("pairs without a path, separated by the cut, count as 0 in the table and are left out below it")
    for name, (measured, decay) in found.items():
        lines.append(f"{name}: {decay_words(decay, measured.unit)}")
        after = decay_behind(measured)
        if after is not None:
            lines.append(f"  behind the target: {decay_words(after, measured.unit)}")
        if measured.left_out:
            names = ", ".join(measured.left_out)
            lines.append(f"  layers left out, because they read in another order: {names}")
        if decay.start:
            lines.append("  the model does not see the target itself: half-life and start are counted from j = 1")
        # Only recurrent models have any.
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
    """Return a sentence that says whether every gradient beyond the cut is exactly 0."""
    largest, count = 0.0, 0
    for record in records.values():
        for row in record["norm"]:
            for at, norm in zip(record["distance"], row, strict=True):
                if abs(at) >= cut and norm is not None:
                    largest, count = max(largest, norm), count + 1
    if not count:
        return f"k2 = {cut}: nothing was measured beyond it; give a larger --distance"
    if largest:
        return f"k2 = {cut}: the gradient beyond it is up to {largest:.3g}, not 0"
    return f"k2 = {cut}: beyond it every gradient is exactly 0"
