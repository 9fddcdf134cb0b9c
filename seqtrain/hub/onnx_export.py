"""Export of a run as ONNX files. Each file is run in onnxruntime and kept only if it agrees with the model."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.tokenizers.foreign import ForeignTokenizer
from seqtrain.data.values.scaling import PERIODS
from seqtrain.errors import Unavailable, UserError
from seqtrain.files.folders import appearing
from seqtrain.hub.folder import TOKENIZER
from seqtrain.hub.leave import Card, in_file, save_json, tokenizer_files
from seqtrain.models.base import Capability, SequenceModel, blank_input, name_of
from seqtrain.tasks.base import Task
from seqtrain.tasks.output import pool

STEP, READ, ABOUT = "step.onnx", "read.onnx", "onnx.json"
TOLERANCE = 1e-5
BATCHES, LENGTHS = (1, 4), (2, 33)  # sizes at which a file is tested
EXAMPLE = (3, 7)  # batch and length for tracing: different from those of the tests
SCALING = ("columns", "known_columns", "mean", "std", "features")  # of a series, in onnx.json
READINGS = 3  # forward passes per test, each from the state after the one before


class _Graph(nn.Module):
    """The function that a file computes: scores of tokens, and the state after them.

    Args:
        model: The model.
        task: Its task, which computes the scores.
        tokenizer: Its tokenizer; the file uses the original ids of a foreign one.
        names: Names of the state's tensors. If empty, the second input is the length of each lane, and no state is
            returned.
        step: True if one token is read at a time.
    """

    def __init__(
        self, model: SequenceModel, task: Task, tokenizer: Any, names: Sequence[str], *, step: bool = False
    ) -> None:
        super().__init__()
        self.model, self.task, self.names = model, task, tuple(names)
        self.pool = getattr(task, "pool", None)
        self.ours: Tensor | None
        ours = torch.from_numpy(tokenizer.ours) if isinstance(tokenizer, ForeignTokenizer) else None
        self.register_buffer("ours", ours)
        self.num_text = tokenizer.vocab_size
        self.has_head = not (step or self.names) or self.pool in (None, "last")
        if self.has_head:
            hidden = torch.zeros(1, 1, model.dim)
            try:
                with torch.no_grad():
                    task.logits(model, hidden)
            except (RuntimeError, ValueError):  # a head that does not read these hidden states
                self.has_head = False

    def forward(self, tokens: Shaped[Tensor, "B T *F"], *more: Tensor) -> tuple[Tensor, ...]:
        if self.ours is not None:
            tokens = self.ours[tokens]
        if self.names:
            hidden, after = self.model(tokens, dict(zip(self.names, more, strict=True)))
            return (self._scores(hidden), *(after[name] for name in self.names))
        if torch.compiler.is_exporting() and Capability.STATEFUL in self.model.capabilities:
            # The same result without a branch on the length of the text, which a graph cannot express.
            hidden = self.model(tokens, self.model.initial(tokens.shape[0]))[0]
        else:
            hidden = self.model.encode(tokens, *more)
        if self.pool is not None and self.has_head:
            hidden = pool(hidden, more[0], self.pool)
        return (self._scores(hidden),)

    def _scores(self, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        if not self.has_head:
            return hidden
        scores = self.task.logits(self.model, hidden)
        if self.ours is None or scores.shape[-1] != self.num_text:
            return scores
        never = scores.new_full((*scores.shape[:-1], len(self.ours) - self.num_text), -torch.inf)
        return torch.cat([scores, never], -1)[..., self.ours]

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs."""
        reads = "values" if blank_input(self.model, 1, 1).is_floating_point() else "tokens"
        return [reads, *(self.names or ["lengths"])]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs. ONNX requires that they differ from those of the inputs."""
        return ["scores" if self.has_head else "hidden_states", *(f"next_{name}" for name in self.names)]

    def example(self, batch: int, length: int, generator: torch.Generator) -> list[Tensor]:
        """Return random inputs: text and start tokens, or values; then an initial state, or lengths."""
        tokens = blank_input(self.model, batch, length)
        if tokens.is_floating_point():
            tokens = torch.randn(tokens.shape, generator=generator)
        else:
            tokens = torch.randint(self.num_text + 1, tokens.shape, generator=generator)
        if self.names:
            return [tokens, *self.model.initial(batch).values()]
        return [tokens, (torch.arange(batch) % 2 == 0) * (length - 1) + 1]  # full lanes alternate with length 1


def save(
    model: SequenceModel, task: Task, preprocessor: Preprocessor, card: Card, target: Path
) -> tuple[list[str], list[str]]:
    """Write a new folder with ONNX files of the model, and the tokenizer or scaling needed to use them.

    Args:
        model: Trained model.
        task: Its task.
        preprocessor: Its tokenizers, labels and scaling.
        card: Returns README.md, given lines about the files.
        target: Folder to create.

    Returns:
        Names of the files, and a line for each that is left out.

    Raises:
        UserError: The packages are missing, no file passes, or the folder cannot be written.
    """
    if target.exists() or target.is_symlink():
        raise UserError(f"--output {target} exists already; name a new folder")
    if Capability.UNCONDITIONAL not in model.capabilities:
        raise UserError(f"--format onnx: model={name_of(model)} needs a source; --format seqtrain writes any run")
    if getattr(task, "chain", None) is not None:  # the likeliest label of each token may not form the best sequence
        raise UserError("--format onnx: task.crf=true needs a search over sequences; --format seqtrain writes any run")
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise Unavailable(f"--format onnx needs {error.name}: pip install 'seqtrain[onnx]'") from None
    tokenizer = preprocessor.tokenizer
    graphs: dict[str, _Graph] = {}
    state = list(model.initial(1)) if Capability.STATEFUL in model.capabilities else []
    if state:
        graphs[STEP] = _Graph(model, task, tokenizer, state, step=True)
    graphs[READ] = _Graph(model, task, tokenizer, state if task.streams else [])
    lines, kept = [], {}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with appearing(target) as folder:
            for name, graph in graphs.items():
                reason = _export(graph, folder / name, free_length=name == READ)
                if reason:
                    (folder / name).unlink(missing_ok=True)
                    lines.append(f"{name}: left out: {reason}")
                else:
                    kept[name] = graph
            if not kept:
                raise UserError(f"--format onnx: {'; '.join(lines)}; --format seqtrain writes any run")
            about = _describe(model, task, preprocessor, kept, folder)
            save_json(folder / ABOUT, about)
            (folder / "README.md").write_text(card(_words(about, task, lines)), "utf-8")
    except OSError as error:
        raise UserError(f"--output {target}: {error.strerror}; make room, or name another folder") from None
    return list(kept), lines


def _export(graph: _Graph, path: Path, *, free_length: bool) -> str | None:
    """Write a file and compare it with the model; return why it is not kept, or None."""
    batch, length = EXAMPLE[0], EXAMPLE[1] if free_length else 1
    generator = torch.Generator().manual_seed(0)
    example = graph.example(batch, length, generator)
    free = {0: "batch", 1: "length"} if free_length else {0: "batch"}
    try:
        with _quiet(), torch.no_grad():
            dims = {axis: torch.export.Dim(name) for axis, name in free.items()}
            shapes = {"tokens": dims, "more": tuple({0: dims[0]} for _ in example[1:])}
            program = torch.onnx.export(
                graph.eval(),
                tuple(example),
                dynamo=True,
                dynamic_shapes=shapes,
                input_names=graph.inputs,
                output_names=graph.outputs,
                custom_translation_table=_recurrences(),
                verbose=False,
            )
            assert program is not None
            _set_shapes(program.model.graph, example, graph(*example), free)
            program.save(str(path))
    except Exception as error:  # the exporter raises many classes
        return f"torch.onnx: {_reason(error)}"
    lengths = LENGTHS if free_length else (1,)
    if graph.model.max_length is not None and free_length:
        lengths = tuple(min(each, max(1, graph.model.max_length // READINGS)) for each in lengths)
    worst = 0.0
    for batch, length in itertools.product(BATCHES, lengths):
        try:
            worst = max(_difference(graph, path, batch, length, generator), worst)
        except Exception as error:  # so does the runtime
            return f"onnxruntime fails at batch {batch}, length {length}: {_reason(error)}"
    if not worst <= TOLERANCE:
        return f"its outputs in onnxruntime differ from those of the model by {worst:.1e}"
    return None


def _reason(error: BaseException) -> str:
    """Return the start of the message of an error's root cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    words = " ".join(str(error).split())
    missing = re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", words)
    return f"has no operator for {missing[1]}" if missing else words[:120] or type(error).__name__


def _recurrences() -> dict[Any, Any]:
    """Return translations of Elman networks: the exporter supports LSTM and GRU only."""
    from onnxscript import opset20

    op: Any = opset20  # Any, because its type hints do not cover values of a graph under construction

    def translation(activation: str) -> Any:
        def rnn(x, before, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first):  # type: ignore[no-untyped-def]
            x, after = op.Transpose(x, perm=[1, 0, 2]), []
            size = len(weights) // num_layers
            for layer in range(num_layers):
                of_input, of_state, *biases = (op.Unsqueeze(each, [0]) for each in weights[layer * size :][:size])
                bias = op.Concat(*biases, axis=1) if biases else None
                state = op.Slice(before, [layer], [layer + 1], axes=[0])
                units = weights[layer * size + 1].shape[0]
                x, state = op.RNN(
                    x, of_input, of_state, bias, None, state, activations=[activation], hidden_size=int(units)
                )
                x = op.Squeeze(x, [1])  # (T, directions, B, U)
                after.append(state)
            return op.Transpose(x, perm=[1, 0, 2]), op.Concat(*after, axis=0)

        return rnn

    aten = torch.ops.aten
    return {aten.rnn_tanh.input: translation("Tanh"), aten.rnn_relu.input: translation("Relu")}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about its own parts and about missing packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _set_shapes(graph: Any, example: list[Tensor], outputs: Sequence[Tensor], free: dict[int, str]) -> None:
    """Declare which axes of the inputs and outputs are free.

    The exporter unrolls a recurrence to trace it and declares the traced length, though the operator that it writes
    accepts any. If a length really is fixed, the comparison with the model fails later.
    """
    from onnx_ir import Shape

    for node in graph:
        for value in node.outputs:
            value.shape = None
    batch = {0: free[0]}
    pooled = outputs[0].dim() < 3  # one vector for each lane
    for value, tensor in zip(graph.inputs, example, strict=True):
        axes = free if value is graph.inputs[0] else batch
        value.shape = Shape([axes.get(axis, size) for axis, size in enumerate(tensor.shape)])
    for value, tensor in zip(graph.outputs, outputs, strict=True):
        axes = free if value is graph.outputs[0] and not pooled else batch
        value.shape = Shape([axes.get(axis, size) for axis, size in enumerate(tensor.shape)])


def _difference(graph: _Graph, path: Path, batch: int, length: int, generator: torch.Generator) -> float:
    """Return the largest difference of any output over several forward passes, relative for values above 1."""
    import onnxruntime

    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4  # the caller reports errors in one line
    session = onnxruntime.InferenceSession(str(path), quiet, providers=["CPUExecutionProvider"])
    worst = 0.0
    ours: list[Tensor] = []
    theirs: list[np.ndarray] = []
    for _ in range(READINGS):
        tokens, *more = graph.example(batch, length, generator)
        given = [tokens, *(ours or more)]
        fed = [tokens.numpy(), *(theirs or [each.numpy() for each in more])]
        with torch.no_grad():
            expected = graph(*given)
        found: list[Any] = list(session.run(None, dict(zip(graph.inputs, fed, strict=True))))
        for one, other in zip(expected, found, strict=True):
            one = one.double().numpy()
            same = one == other  # equal infinities would give nan
            gap = np.abs(np.where(same, 0.0, one) - np.where(same, 0.0, other)) / np.maximum(np.abs(one), 1.0)
            gap = np.where(np.isnan(gap), np.inf, gap)
            worst = max(worst, float(gap.max(initial=0.0)))
        ours, theirs = list(expected[1:]), found[1:]
    return worst


def _describe(
    model: SequenceModel, task: Task, preprocessor: Preprocessor, kept: dict[str, _Graph], folder: Path
) -> dict[str, Any]:
    """Write the tokenizer's files, or the scaling of values; return the content of onnx.json."""
    about: dict[str, Any] = {"model": name_of(model), "task": task.name()}
    about["files"] = {name: {"inputs": graph.inputs, "outputs": graph.outputs} for name, graph in kept.items()}
    state = model.initial(1) if any(graph.names for graph in kept.values()) else {}
    about["state"] = {
        name: {"shape": ["batch", *value.shape[1:]], "type": str(value.dtype).removeprefix("torch."), "initial": 0}
        for name, value in state.items()
    }
    about["max_length"] = model.max_length
    if preprocessor.scale is not None:  # scores are scaled values
        about["scale"] = {"mean": preprocessor.scale.mean, "std": preprocessor.scale.std}
    direction = getattr(task, "direction", "forward")
    if direction != "forward":
        about["direction"] = direction
    if preprocessor.series is not None:
        preprocessor.save(folder)
        about |= {name: list(getattr(preprocessor.series, name)) for name in SCALING}
        about |= {"masked": list(preprocessor.series.read_masks), "apart": preprocessor.series.apart}
        return about | {"labels": list(getattr(task, "labels", ()))}
    rows = len(model.embed.weight)  # type: ignore[arg-type]
    tokenizer = preprocessor.tokenizer
    for name, content in tokenizer_files(about["model"], tokenizer, rows).items():
        save_json(folder / name, content)
    digest = hashlib.sha256((folder / TOKENIZER).read_bytes()).hexdigest()
    about |= {
        "vocabulary": tokenizer.vocab_size,
        "start": in_file(tokenizer, tokenizer.start),
        "tokenizer_sha256": digest,
    }
    for name, ids in zip(("before", "after"), task.edges(tokenizer), strict=True):
        about[name] = [in_file(tokenizer, index) for index in ids]
    return about | {"labels": list(getattr(task, "labels", ()))}


def _words(about: dict[str, Any], task: Task, left_out: list[str]) -> list[str]:
    """Return the lines of the card about the files, with code that generates a text if they can."""
    lines = [
        f"- `{name}` maps {', '.join(map(_code, each['inputs']))} to {', '.join(map(_code, each['outputs']))}."
        for name, each in about["files"].items()
    ]
    start = ", the start token and the hash of the tokenizer" if "start" in about else ""
    lines.append(f"All sizes{start} are in `onnx.json`; the initial state is zero.")
    if "columns" in about:
        lines += _words_on_values(about, task)
    if about["max_length"] is not None:
        lines.append(f"- The model has positions for {about['max_length']} tokens, so it cannot read more in sequence.")
    if "scale" in about:
        lines.append("- A prediction is `scores * std + mean`, with the `scale` in `onnx.json`.")
    if "direction" in about:
        lines.append(f"- The model reads {about['direction']}: give the last token of a text first.")
    lines += [f"- {line}" for line in left_out]
    if about["task"] == "next_token" and STEP in about["files"] and getattr(task, "direction", None) == "forward":
        lines += ["", "```python", *CODE.strip().splitlines(), "```"]
    return lines


def _words_on_values(about: dict[str, Any], task: Any) -> list[str]:
    """Return the lines of the card about the channels of `values`, in their order, and about forecasts."""
    columns = "one channel for each of `columns`, in this order"
    if about["apart"] and len(about["columns"]) > 1:
        columns = "one channel; each of `columns` is a series of its own"
    lines = [f"- `values` are (value - mean) / std of `onnx.json`, {columns}; 0 if a value is missing."]
    if any(about["masked"]):
        lines.append(
            "- Then, for each channel that is `masked`, 1 if its value is present, else 0; then, for each of them, "
            "log(1 + steps since it was present)."
        )
    if about["known_columns"]:
        lines.append("- Then `known_columns`, scaled by the entries of `mean` and `std` after those of `columns`.")
    if about["features"]:
        periods = ", ".join(f"{name} {PERIODS[name]:.0f}" for name in about["features"])
        lines.append(
            "- Then, for each of `features`, sine and cosine of 2 pi t / period: t is the seconds since Monday, "
            f"1970-01-05 (in UTC if times have a zone), and the period in seconds is: {periods}."
        )
    if about["task"] != "forecast":
        return lines
    lines.append(
        "- Row i contains values, masks and steps of row i - 1 (0 before the first row), and `known_columns` and "
        "`features` of row i itself."
    )
    if task.patch > 1:
        lines.append(f"- Each position of `values` is {task.patch} rows, one after the other.")
    if task.distribution.is_probabilistic:
        return [*lines, "- `scores` are raw parameters of a distribution of scaled values."]
    last = " + the last scaled value" if task.relative else ""
    shape = f"({task.num_steps}, {task.num_channels})"
    return [*lines, f"- `scores` are {shape} steps ahead and channels; a forecast is (`scores`{last}) * std + mean."]


def _code(name: str) -> str:
    return f"`{name}`"


CODE = """
import json
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

prompt, length = "the", 100
about, tokenizer = json.load(open("onnx.json")), Tokenizer.from_file("tokenizer.json")
session = onnxruntime.InferenceSession("step.onnx")
state = {name: np.zeros([1, *each["shape"][1:]], each["type"]) for name, each in about["state"].items()}
ids = [about["start"], *tokenizer.encode(prompt, add_special_tokens=False).ids]
given = len(ids)
length = min(length, (about["max_length"] or given + length) - given)
for place in range(given + length - 1):
    scores, *after = session.run(None, {"tokens": np.array([[ids[place]]]), **state})
    state = dict(zip(state, after))
    if place + 1 == len(ids):
        ids.append(int(scores[0, 0].argmax()))
print(prompt + tokenizer.decode(ids[given:]))
"""
"""Generates a text, greedily."""
