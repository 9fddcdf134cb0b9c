"""What a card does with our trainings: `make bench-gpu`, about ten minutes on one GPU.

Times are medians over blocks of steps, read from the card's own events. `--device cpu --small` runs every line on the
CPU with tiny sizes, as `make test-long` does: its numbers say nothing. What only a card has (CUDA graphs, flash
attention, pinned memory) is then said to be left out.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import itertools
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.bench import machine, recorded_session
from seqtrain.config import check
from seqtrain.data.batching.loader import TrainLoader
from seqtrain.models.layers.attention import window_mask
from seqtrain.training.carried_state import CarriedState, read_batch
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_pair
from seqtrain.training.session import cost_of
from seqtrain.training.splits import Data
from seqtrain.training.trainer import quiet_lightning
from tests.gpu.card import refuse_without_card

PRECISIONS = {"float32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LEFT_OUT = "left out: it needs a GPU"
GPT_2 = ("model=gpt", "model.positions=learned", "tbptt=windows", "model.bias=true")


@dataclass(frozen=True)
class Sizes:
    """How large what is measured is; `small` to see on a CPU that every line runs."""

    matrices: tuple[int, ...] = (4096, 8192, 16384)
    gpt: str = "model.dim=768 model.num_layers=12 model.num_heads=12 data.batch_size=32 tbptt.k2=1024"
    positions: int = 1024
    vocab_size: int = 50_257
    tokens: int = 20_000_000
    lstm: str = "model.dim=1500 model.num_layers=2 data.batch_size=64 tbptt.k2=35"
    small_lstm: str = "model.dim=256 model.num_layers=2 data.batch_size=32 tbptt.k2=32"
    attention: tuple[int, int, int] = (8, 12, 4096)  # lanes, heads, tokens
    window: int = 512
    warm: int = 5
    steps: int = 20
    blocks: int = 5


SMALL = Sizes(
    matrices=(128,),
    gpt="model.dim=16 model.num_layers=2 model.num_heads=2 data.batch_size=4 tbptt.k2=16",
    positions=16,
    vocab_size=300,
    tokens=4_000,
    lstm="model.dim=16 model.num_layers=2 data.batch_size=4 tbptt.k2=8",
    small_lstm="model.dim=8 model.num_layers=2 data.batch_size=4 tbptt.k2=8",
    attention=(2, 2, 32),
    window=8,
    warm=1,
    steps=2,
    blocks=2,
)


class Bench:
    """One device, and how it is measured."""

    def __init__(self, device: torch.device, sizes: Sizes, shared: Path) -> None:
        self.device = device
        self.sizes = sizes
        self.shared = shared
        self.on_card = device.type == "cuda"
        self.accelerator = "gpu" if self.on_card else "cpu"

    # -- time and memory ---------------------------------------------------------------------------------------------

    def milliseconds(self, work: Callable[[], object], steps: int | None = None) -> list[float]:
        """Of one call of `work`, block by block."""
        steps = steps or self.sizes.steps
        for _ in range(self.sizes.warm):
            work()
        times = []
        for _ in range(self.sizes.blocks):
            self.wait()
            begin = time.perf_counter()
            for _ in range(steps):
                work()
            self.wait()  # work was handed over; now it is done
            times.append((time.perf_counter() - begin) / steps * 1e3)
        return times

    def wait(self) -> None:
        if self.on_card:
            torch.cuda.synchronize()

    @contextlib.contextmanager
    def peak(self, found: list[str]) -> Iterator[None]:
        """Appends the most memory that torch held on the card at once."""
        gc.collect()
        if self.on_card:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        yield
        if self.on_card:
            found.append(f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
        else:
            found.append("no card")

    # -- the peak of matrices ----------------------------------------------------------------------------------------

    def matrix_peaks(self) -> dict[str, float]:
        """The best that a product of two square matrices does, in FLOP/s, for each precision."""
        peaks = {}
        for name, dtype in PRECISIONS.items():
            best = 0.0
            for size in self.sizes.matrices:
                left, right = (torch.randn(size, size, device=self.device).to(dtype) for _ in range(2))
                out = torch.empty_like(left)
                times = self.milliseconds(lambda left=left, right=right, out=out: torch.mm(left, right, out=out))
                best = max(best, 2 * size**3 / (min(times) / 1e3))
            peaks[name] = best
        return peaks

    # -- trainings ---------------------------------------------------------------------------------------------------

    def trainings(self, folder: Path, peaks: dict[str, float]) -> Iterator[str]:
        """Lines of the table: whole trainings beside a bare loop on the same batches."""
        made_up = ("data=nanogpt", f"data.path={made_up_tokens(folder, self.sizes)}")
        made_up = (*made_up, f"data.vocab_size={self.sizes.vocab_size}")
        gpt = (*GPT_2, f"model.max_length={self.sizes.positions}")
        for precision in ("bf16-mixed", "32-true"):
            words = (*gpt, *self.sizes.gpt.split(), *made_up)
            yield self.training("GPT-2 124M, windows", words, precision, peaks)
        rotary = ("model=gpt", *self.sizes.gpt.split(), *made_up, f"model.attention_window={self.sizes.positions}")
        yield self.training("the same with carried keys, rotary", rotary, "bf16-mixed", peaks)
        text, name = self.wikitext(made_up)
        for precision in ("bf16-mixed", "32-true"):
            words = ("model=lstm", *self.sizes.lstm.split(), *text)
            yield self.training(f"LSTM 2x1500, {name}", words, precision, peaks)

    def wikitext(self, made_up: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """WikiText-2 by words where it is there, else made-up tokens."""
        places = {part: self.shared / f"wiki.{part}.tokens" for part in ("train", "valid")}
        if self.sizes is SMALL or not all(place.is_file() for place in places.values()):
            return made_up, "made-up tokens"
        paths = (f"data.path={places['train']}", f"data.validation_path={places['valid']}")
        return ("data=text", *paths, "data.format=txt", "tokenizer=word"), "WikiText-2"

    def training(self, title: str, words: tuple[str, ...], precision: str, peaks: dict[str, float]) -> str:
        steps = self.sizes.warm + self.sizes.steps * self.sizes.blocks
        common = (
            *(
                f"trainer.accelerator={self.accelerator}",
                f"trainer.precision={precision}",
                f"trainer.max_steps={steps}",
            ),
            *("logger=none", "callbacks=none", "optimizer=adamw", "optimizer.lr=0.001"),
        )
        config = check.compose([*words, *common]).config
        data = make_data(config, ("train", "validation"), lambda line: None)
        plan = data.plan("train")
        memory: list[str] = []
        with self.peak(memory):
            ours, parameters = self.whole_training(config, data)
        with self.peak(memory):
            bare = self.bare_loop(config, data, precision)
        tokens = plan.num_tokens / plan.steps
        peak = peaks["float32" if precision == "32-true" else "bf16"]
        flops = cost_of(config, data).flops_per_token
        rate = tokens / (statistics.median(ours) / 1e3)
        return (
            f"| {title} | {precision} | {parameters:,} | {rate:,.0f} | {rate * flops / peak:.3f} | "
            f"{statistics.median(ours):.2f} | {statistics.median(bare):.2f} | {memory[0]} | {memory[1]} |"
        )

    def whole_training(self, config: Any, data: Data) -> tuple[list[float], int]:
        """Milliseconds a step of `seqtrain train`, block by block, and the parameters."""
        marks, bench = [], self

        class Clock(Callback):
            def on_train_batch_end(self, trainer: Any, *args: object) -> None:
                done = trainer.global_step - bench.sizes.warm
                if done >= 0 and done % bench.sizes.steps == 0:
                    bench.wait()
                    marks.append(time.perf_counter())

        with (
            tempfile.TemporaryDirectory() as place,
            recorded_session(config, data, Path(place) / "run") as session,
            contextlib.redirect_stderr(io.StringIO()),
        ):
            session.trainer.callbacks.append(Clock())  # pyright: ignore[reportAttributeAccessIssue]
            session.trainer.fit(session.learner, TrainLoader(data.batcher("train"), session.plan, accumulate=1))
            parameters = sum(weight.numel() for weight in session.learner.parameters())
        return [(end - begin) / self.sizes.steps * 1e3 for begin, end in itertools.pairwise(marks)], parameters

    def bare_loop(self, config: Any, data: Data, precision: str) -> list[float]:
        """Milliseconds a step of the loop that a person would write."""
        step, batches = self.step_of(config, data, precision)
        return self.milliseconds(lambda: step(next(batches).to(self.device, non_blocking=True)))

    def step_of(self, config: Any, data: Data, precision: str) -> tuple[Callable[[Any], None], Iterator[Any]]:
        batches = iter(TrainLoader(data.batcher("train"), data.plan("train"), accumulate=1))
        model, task = (part.to(self.device) for part in make_pair(config, data.preprocessor, data.label_counts))
        return bare_step(model, task, data.tbptt.carry, precision, self.device), batches

    # -- attention with the window -----------------------------------------------------------------------------------

    def attention(self) -> Iterator[str]:
        """Forward and backward of one layer's attention: by mask as the GPT has it, causal, varlen and flex."""
        lanes, heads, length = self.sizes.attention
        width, window = 64 if self.on_card else 8, self.sizes.window
        shape = (lanes, heads, length, width)
        dtype = torch.bfloat16 if self.on_card else torch.float32
        query, key, value = (torch.randn(shape, device=self.device, dtype=dtype, requires_grad=True) for _ in range(3))
        before = torch.zeros(lanes, dtype=torch.long, device=self.device)
        mask = window_mask(before, length, 0, window)
        ways: dict[str, Callable[[], Tensor]] = {
            f"mask of the window ({window})": lambda: F.scaled_dot_product_attention(query, key, value, mask),
            "causal, no window": lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        }
        if self.on_card:
            ways |= self.window_kernels(query, key, value, window)
        expected = ways[next(iter(ways))]().detach()
        for name, way in ways.items():
            memory: list[str] = []
            try:
                away = float((way().detach() - expected).abs().max())
                with self.peak(memory):
                    times = self.milliseconds(lambda way=way: way().sum().backward())
            except Exception as error:  # a kernel that this card or torch does not have: said, and the next
                yield f"| {name} | {type(error).__name__}: {str(error).splitlines()[0][:80]} | | |"
                continue
            same = "" if "no window" in name else f"{away:.1e}"
            yield f"| {name} | {statistics.median(times):.3f} | {same} | {memory[0]} |"
        if not self.on_card:
            yield f"| varlen and flex attention with the window | {LEFT_OUT} | | |"

    def window_kernels(self, query: Tensor, key: Tensor, value: Tensor, window: int) -> dict[str, Callable[[], Tensor]]:
        """Kernels that never read what lies outside the window."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        from torch.nn.attention.varlen import varlen_attn

        lanes, heads, length, width = query.shape
        ends = torch.arange(0, (lanes + 1) * length, length, device=self.device, dtype=torch.int32)

        def varlen() -> Tensor:
            flat = [part.transpose(1, 2).reshape(lanes * length, heads, width) for part in (query, key, value)]
            mixed = varlen_attn(*flat, ends, ends, length, length, window_size=(window, 0))  # type: ignore[arg-type]
            return mixed.view(lanes, length, heads, width).transpose(1, 2)  # type: ignore[union-attr]

        def seen(lane: Tensor, head: Tensor, asks: Tensor, told: Tensor) -> Tensor:
            return (asks >= told) & (asks - told <= window)

        blocks = create_block_mask(seen, None, None, length, length, device=self.device)
        compiled = torch.compile(flex_attention)
        return {
            "varlen_attn (flash), window": varlen,
            "flex_attention, compiled, window": lambda: compiled(query, key, value, block_mask=blocks),  # type: ignore[dict-item]
        }

    # -- how batches come to the card --------------------------------------------------------------------------------

    def transfers(self, folder: Path) -> Iterator[str]:
        """A step whose batch comes by pageable memory, by pinned memory, and ahead of it on a stream of its own."""
        if not self.on_card:
            yield f"| pinned memory, copies ahead | {LEFT_OUT} |"
        data, config = self.small_lstm(folder)
        ways: dict[str, Callable[[Iterator[Any]], Iterator[Any]]] = {
            "pageable": lambda batches: (batch.to(self.device) for batch in batches),
            "pinned, not waited for": lambda batches: (batch.to(self.device, non_blocking=True) for batch in batches),
        }
        if self.on_card:
            ways["pinned, one batch ahead on its own stream"] = self.ahead
        for name, way in ways.items():
            step, batches = self.step_of(config, data, "32-true")
            there = way(batches)
            times = self.milliseconds(lambda step=step, there=there: step(next(there)))
            yield f"| LSTM 2x256, float32, batches {name} | {statistics.median(times):.3f} |"

    def ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        stream = torch.cuda.Stream()
        coming = None
        for batch in batches:
            with torch.cuda.stream(stream):
                newest = batch.to(self.device, non_blocking=True)
            if coming is not None:
                torch.cuda.current_stream().wait_stream(stream)
                yield coming
            coming = newest

    def small_lstm(self, folder: Path) -> tuple[Data, Any]:
        words = ("model=lstm", *self.sizes.small_lstm.split(), "data=nanogpt")
        words = (*words, f"data.path={made_up_tokens(folder, self.sizes)}", f"data.vocab_size={self.sizes.vocab_size}")
        config = check.compose([*words, "logger=none", "callbacks=none"]).config
        return make_data(config, ("train", "validation"), lambda line: None), config

    # -- CUDA graphs -------------------------------------------------------------------------------------------------

    def graphs(self, folder: Path) -> Iterator[str]:
        """Forward and backward of a small recurrent step, call by call and replayed as one graph."""
        data, config = self.small_lstm(folder)
        model, task = make_pair(config, data.preprocessor, data.label_counts)
        pair = nn.ModuleList([model, task]).to(self.device).train()
        plan = data.plan("train")
        batch: Any = data.batcher("train").batch(plan.chunk(0, 1), slice(0, plan.lanes))
        batch = batch.to(self.device)
        state = model.initial(plan.lanes)
        static = {name: value.clone() for name, value in state.items()}

        def both_ways() -> None:
            terms, after = task.evaluate(model, batch, static)
            (terms["loss"][0] / batch.totals["loss"]).backward()
            with torch.no_grad():
                for name, value in after.items():
                    static[name].copy_(value)

        times = self.milliseconds(both_ways)
        yield f"| LSTM 2x256, forward and backward, call by call | {statistics.median(times):.3f} |"
        if not self.on_card:
            yield f"| the same as a CUDA graph | {LEFT_OUT} |"
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                both_ways()
        torch.cuda.current_stream().wait_stream(stream)
        pair.zero_grad(set_to_none=True)  # gradients are then made in the graph's own memory
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            both_ways()
        times = self.milliseconds(graph.replay)
        yield f"| the same as a CUDA graph | {statistics.median(times):.3f} |"


def bare_step(model: Any, task: Any, carry: bool, precision: str, device: torch.device) -> Callable[[Any], None]:
    """Return a training step with AdamW on a batch, without Lightning; `carry`: the state goes on to the next step."""
    pair = nn.ModuleList([model, task]).train()
    optimizer = torch.optim.AdamW(pair.parameters(), 1e-3, (0.9, 0.95), weight_decay=0.01, fused=True)
    carried = CarriedState() if carry else None
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32

    def step(batch: Any) -> None:
        with torch.autocast(device.type, dtype, enabled=dtype is torch.bfloat16):
            terms, _ = read_batch(model, task, batch, carried)
            loss = reduce(torch.add, [terms[name][0] / batch.totals[name] for name in task.differentiated])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(pair.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def made_up_tokens(folder: Path, sizes: Sizes) -> Path:
    """Folder with train.bin and val.bin of random tokens."""
    if not (folder / "val.bin").exists():
        draws = np.random.default_rng(0)
        for name, count in (("train.bin", sizes.tokens), ("val.bin", sizes.tokens // 20)):
            draws.integers(0, sizes.vocab_size - 1, count).astype(np.uint16).tofile(folder / name)
    return folder


def main(words: list[str] | None = None) -> None:
    """Measures everything and prints tables in Markdown, a line at a time, so that what was measured is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that every line runs")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data/wikitext-2"), help="WikiText-2, if there")
    parser.add_argument("--write", type=Path, help="a file that gets the tables, too")
    options = parser.parse_args(words)
    if options.device == "cuda":
        refuse_without_card()
    warnings.filterwarnings("ignore")
    quiet_lightning()
    torch.backends.cudnn.allow_tf32 = False
    bench = Bench(torch.device(options.device), SMALL if options.small else Sizes(), options.shared)
    lines = []
    for line in tables(bench, options.device):
        print(line, flush=True)
        lines.append(line)
        if options.write:
            options.write.write_text("\n".join(lines) + "\n")


def tables(bench: Bench, device: str) -> Iterator[str]:
    """All lines that are printed."""
    card = torch.cuda.get_device_name() if bench.on_card else "no card"
    yield f"{machine('make bench-gpu')}; {card}"
    peaks = bench.matrix_peaks()
    yield ""
    yield "| matrices | TFLOP/s |"
    yield "|---|---|"
    for name, peak in peaks.items():
        yield f"| {name} | {peak / 1e12:.1f} |"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        yield ""
        yield "| training | precision | parameters | tokens/s | of peak | ms a step | bare loop | memory | bare loop |"
        yield "|---|---|---|---|---|---|---|---|---|"
        yield from bench.trainings(folder, peaks)
        yield ""
        yield "| attention, forward and backward | ms | away from the mask | peak |"
        yield "|---|---|---|---|"
        yield from bench.attention()
        yield ""
        yield "| small recurrent step | ms |"
        yield "|---|---|"
        yield from bench.transfers(folder)
        yield from bench.graphs(folder)


if __name__ == "__main__":
    main()
