"""`seqtrain export`: write a trained run as safetensors and JSON, for use elsewhere."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from seqtrain.cli.arguments import Parser
from seqtrain.distributed.ranks import say


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "export",
        "Write the weights of a run as model.safetensors, with config.json and its tokenizers: a folder that\n"
        "predict, embed, search, init_from= and seqtrain.load open like the run, with the same results.\n"
        "--format hub writes a folder for the transformers library, if that has a model of the same function;\n"
        "--format onnx writes step.onnx (one token per call) and read.onnx (whole texts), each tested in onnxruntime.",
        "seqtrain export outputs/2026-11-21_02-04-00_next_token_lstm --output my_model",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--output", type=Path, metavar="DIR", required=True, help="a new folder")
    parser.add_argument("--format", default="seqtrain", choices=("seqtrain", "hub", "onnx"), help="default: seqtrain")
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    options = parser.parse_args(argv)

    from seqtrain.inference.opened import open_run
    from seqtrain.runs.directory import Run

    Run.open(options.run)  # an export is not exported again
    opened = open_run(options.run, options.checkpoint)
    words, lines = "", []
    if options.format == "hub":
        from seqtrain.config.instantiate import plain
        from seqtrain.hub import leave

        card = partial(leave.card_of, opened.run.summary, options.output.name, "transformers")
        parts = (opened.model, opened.task, opened.tokenizer, plain(opened.config.model))
        words = f", as {leave.save(*parts, card, options.output)}"
    elif options.format == "onnx":
        from seqtrain.hub import leave, onnx_export

        card = partial(leave.card_of, opened.run.summary, options.output.name, "onnx")
        kept, lines = onnx_export.save(opened.model, opened.task, opened.preprocessor, card, options.output)
        words = f", as {' and '.join(kept)}"
    else:
        opened.write_export(options.output)
    size = sum(path.stat().st_size for path in options.output.iterdir())
    if options.json:
        print(json.dumps({"output": str(options.output), "step": opened.step, "bytes": size, "left_out": lines}))
    else:
        where = f"the {options.checkpoint} checkpoint of {opened.run.path}, step {opened.step}"
        for line in (*lines, f"{options.output}: {where}, {size:,} bytes{words}"):
            say(line)
    return 0
