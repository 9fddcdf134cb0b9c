"""Scaling law of models: train a ladder of budgets, fit the law, and test it on a larger budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.analysis.measured import Measured, written
from seqtrain.analysis.scale_plan import Planned, plan, size_words
from seqtrain.config.ranges import Range, check_number, check_numbers
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text
from seqtrain.terminal import pasted

if TYPE_CHECKING:
    from seqtrain.analysis.scaling_law import Fitted, Prediction

FLOPS = Range(1e6, 1e24)
SEEDS = Range(1, 100, whole=True)
RATIO = Range(0.01, 1e6)
LADDER = (1e11, 2e11, 4e11, 8e11, 1.6e12)
FEWEST = 4, "budgets; three numbers are fitted to them"
HELD_BACK = 4  # times the largest rung of the ladder
TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022
Train = Callable[..., Path]
"""Trains a run of this name with overrides, or reuses that of an earlier call; returns its directory."""
DECIDED = ("model", "seed", "budget", "run_dir", "trainer.max_steps", "trainer.max_epochs", "model.dim")


@dataclass(frozen=True)
class Rung:
    """One training of the ladder."""

    model: str
    seed: int
    asked_flops: float
    flops: float  # actually spent
    parameters: int
    tokens: int
    epochs: float
    loss: float  # of validation, in nats per token
    run: str


def measured(
    overrides: Sequence[str],
    out: Path,
    *,
    flops: Sequence[float] = LADDER,
    hold_back: float | None = None,
    seeds: int = 2,
    tokens_per_parameter: float = TOKENS_PER_PARAMETER,
) -> Measured:
    """Train and fit a ladder; write the record and its plot. Runs are kept in `out` and reused by later calls.

    Args:
        overrides: Overrides of all runs; "model=" may name several.
        out: Folder of the record, the plot and the runs.
        flops: Budgets of the ladder, in FLOPs.
        hold_back: Budget that is predicted, in FLOPs. None: 4 times the largest of the ladder.
        seeds: Number of trainings for each budget.
        tokens_per_parameter: Training tokens per parameter, which sets the size of the model for a budget.

    Raises:
        UserError: The caller can fix it.
        Interrupted: At a signal; a second call continues.
    """
    from seqtrain.analysis import scaling_law

    budgets: tuple[float, ...] = check_numbers("flops", flops, FLOPS, *FEWEST)
    check_number("hold_back", hold_back, FLOPS)
    check_number("seeds", seeds, SEEDS)
    check_number("tokens_per_parameter", tokens_per_parameter, RATIO)
    if hold_back is None:
        hold_back = HELD_BACK * budgets[-1]
    if hold_back <= budgets[-1]:
        raise UserError(f"--hold-back {hold_back:g}: must be above the largest rung, {budgets[-1]:g}")
    # The model is an axis of the ladder, not an override for all runs.
    models, others = _models(overrides)
    # Check everything before creating a folder.
    planned = plan(models, others, [*budgets, hold_back], tokens_per_parameter)
    out.mkdir(parents=True, exist_ok=True)
    for model, rungs_of_model in planned.items():
        line = size_words(model, rungs_of_model)
        if line is not None:
            say(line)
    # Existing runs are reused, so a killed ladder continues.
    train = trainer(out / "runs")
    found: dict[str, tuple[Fitted, Prediction]] = {}
    rungs: list[Rung] = []
    for model, (*ladder, last) in planned.items():
        own = _train_rungs(train, model, others, ladder, seeds)
        rungs += own
        fitted = scaling_law.fit([rung.flops for rung in own], [rung.loss for rung in own])
        prediction = fitted.predict(hold_back)
        # Print the prediction before the training, which shows that it was not adapted to the result.
        say(f"{model}: predicted at {hold_back:g} FLOPs: {_words(prediction)}")
        held_back = _train_rungs(train, model, others, [last], seeds)
        rungs += held_back
        # Predict at the FLOPs actually spent, which differ slightly from the budget.
        found[model] = fitted, fitted.predict(held_back[0].flops)
    record, lines = _found(found, rungs, budgets, hold_back)
    record = {"overrides": list(overrides), "tokens_per_parameter": tokens_per_parameter, **record}
    laws = {model: fitted for model, (fitted, _) in found.items()}
    points = [(rung.model, rung.flops, rung.loss) for rung in rungs]
    scaling_law.draw(laws, points, budgets[-1], out / "scale.png")
    return written(out, "scale", record, lines, ["scale.png"])


def _models(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the models, and the other overrides."""
    models, others = ["lstm"], []
    for word in overrides:
        key, _, value = word.partition("=")
        if key == "model":
            models = value.split(",")
        elif key in DECIDED:
            raise UserError(f"{word}: the ladder decides it; leave it out")
        else:
            others.append(word)
    return models, others


def _train_rungs(train: Train, model: str, others: Sequence[str], ladder: Sequence[Planned], seeds: int) -> list[Rung]:
    """Train a model with each budget and seed.

    Args:
        train: Trains a run, or takes it from an earlier call.
        model: Name of the model, as in `model=`.
        others: Overrides of all runs.
        ladder: Planned rungs of the model.
        seeds: Number of seeds for each rung.
    """
    from seqtrain.runs.directory import Run

    rungs = []
    for planned in ladder:
        flops = planned.asked_flops
        for seed in range(1, seeds + 1):
            words = [f"model={model}", f"seed={seed}", planned.budget, *others]
            # Only the final validation is needed; earlier ones would only take time.
            if not any(word.startswith("trainer.validate_every=") for word in words):
                words.append("trainer.validate_every=1000000")
            path = train(f"{model}-{flops:g}-{seed}", *words)
            trained = Run.open(path)
            summary, records = trained.summary, trained.metrics()
            assert summary.steps is not None  # it has finished
            tokens = int(summary.tokens or 0)
            rungs.append(
                Rung(
                    model=model,
                    seed=seed,
                    asked_flops=flops,
                    flops=float(summary.flops or flops),
                    parameters=summary.parameters["total"],
                    tokens=tokens,
                    epochs=float(records[-1]["epoch"]),
                    loss=summary.metrics["validation"]["loss"],
                    run=str(path),
                )
            )
    return rungs


def _words(prediction: Prediction) -> str:
    return f"{prediction.loss:.4f} nats a token (90 % interval {prediction.low:.4f} to {prediction.high:.4f})"


def _found(
    found: dict[str, tuple[Fitted, Prediction]], rungs: Sequence[Rung], budgets: Sequence[float], hold_back: float
) -> tuple[dict[str, Any], list[str]]:
    """Return the record, and the lines to print."""
    lines = ["model  seed  FLOPs     parameters  tokens      epochs  loss"]
    for rung in rungs:
        lines.append(
            f"{rung.model:5}  {rung.seed:4}  {rung.flops:8.3g}  {rung.parameters:10,}  {rung.tokens:10,}  "
            f"{rung.epochs:6.2f}  {rung.loss:.4f}"
        )
    numbers: dict[str, float] = {}
    models: dict[str, Any] = {}
    for model, (fitted, prediction) in found.items():
        # `rungs` contains the rungs of all models.
        own = [rung for rung in rungs if rung.model == model]
        held_back = [rung.loss for rung in own if rung.asked_flops == hold_back]
        last = [rung.loss for rung in own if rung.asked_flops == budgets[-1]]
        lines += ["", *_verdict(model, fitted, prediction, held_back, last)]
        if any(rung.epochs > 1 for rung in own):
            lines.append("  some rungs read the data more than once, which the law does not model: use more data")
        # Each seed separately: the interval is for one training.
        inside = [prediction.low <= loss <= prediction.high for loss in held_back]
        measured = sum(held_back) / len(held_back)
        models[model] = {
            **fitted.record(),
            "prediction": asdict(prediction),
            "measured": held_back,
            "inside": inside,
            "remarks": fitted.remarks(),
        }
        numbers |= {
            f"{model}_predicted": prediction.loss,
            f"{model}_low": prediction.low,
            f"{model}_high": prediction.high,
            f"{model}_measured": measured,
            f"{model}_exponent": fitted.law.b,
            f"{model}_inside": sum(inside) / len(inside),
        }
    record = {
        "rungs": [asdict(rung) for rung in rungs],
        "models": models,
        "numbers": numbers,
    }
    return record, lines


def _verdict(
    model: str, fitted: Fitted, prediction: Prediction, held_back: Sequence[float], last: Sequence[float]
) -> list[str]:
    """Return the lines about a model's law, and how its prediction compares with the measured losses."""
    law = fitted.law
    mean = sum(held_back) / len(held_back)
    lines = [
        f"{model}: L(C) = {law.a:.3f} (C / {law.unit:.2g})^-{law.b:.3f} + {law.c:.3f}; b {fitted.b_low:.3f} to "
        f"{fitted.b_high:.3f}, c {fitted.c_low:.3f} to {fitted.c_high:.3f} (90 %)"
    ]
    for remark in fitted.remarks():
        lines.append(f"  {remark}")
    lines.append(
        f"  its upper rungs, predicted from those below: off by {fitted.miss:.1%} of the loss per doubling of C"
    )
    lines.append(f"  predicted for one training of {prediction.flops:.3g} FLOPs: {_words(prediction)}")
    for loss in held_back:
        place = "inside" if prediction.low <= loss <= prediction.high else "outside"
        lines.append(f"  measured {loss:.4f}: {place}, off by {loss - prediction.loss:+.4f}")
    plain, flat = fitted.plain.at(prediction.flops), sum(last) / len(last)
    lines.append(
        f"  for comparison: without c {plain:.4f} (off by {mean - plain:+.4f}); the last rung's loss {flat:.4f} "
        f"(off by {mean - flat:+.4f})"
    )
    return lines


def trainer(folder: Path) -> Train:
    """Return a function that trains runs in a folder, or reuses or resumes those of an earlier call."""

    def train(name: str, *overrides: str) -> Path:
        from seqtrain.runs.directory import CONFIG, Run

        path = folder / name
        words = [*overrides, f"run_dir={path}", "logger=none"]
        # Stored next to the run: its summary contains only the newest command, which may be a resume.
        asked, text = folder / f"{name}.overrides.json", json.dumps(overrides) + "\n"
        # A call that was killed early leaves an empty folder, which `train` accepts; it refuses any other content.
        if not (path / CONFIG).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_text(asked, text)
            say(f"trains: {pasted('seqtrain', 'train', *words)}")
            _start(words)
            return path
        if not asked.exists() or asked.read_text("utf-8") != text:
            raise UserError(f"{path}: this run has other options; remove it, or give another --out")
        if Run.open(path).summary.status != "finished":
            _resume(path)
        return path

    return train


def _start(words: Sequence[str]) -> None:
    from seqtrain.config import check
    from seqtrain.experiment.start import Request, start

    composed = check.compose(list(words), ())
    start(composed, Request(list(words), (), ("seqtrain", "train", *words)))


def _resume(path: Path) -> None:
    from seqtrain.experiment.resume import resume

    say(f"resumes: {path}")
    resume(str(path), [], ("seqtrain", "resume", str(path)))
