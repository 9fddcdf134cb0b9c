"""`seqtrain inspect`: print which model a Hugging Face folder contains, and what a run would begin with."""

from __future__ import annotations

import json
from typing import Any

from seqtrain.cli.arguments import Parser
from seqtrain.distributed.ranks import say
from seqtrain.errors import first_few


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "inspect",
        "Show which model a Hugging Face folder (config.json, *.safetensors, tokenizer.json) contains, which of our\n"
        "models reads it, and which parts are left behind. The weights are not read.",
        "seqtrain inspect all-MiniLM-L6-v2",
    )
    parser.add_argument("folder", metavar="FOLDER", help="its path, or hub:NAME")
    options = parser.parse_args(argv)

    from seqtrain.hub.convert import located, opened

    imported = opened(located(options.folder))
    about: dict[str, Any] = {
        "model_type": imported.model_type,
        "model": imported.family.model,
        "options": imported.options,
        "parameters": sum(value.numel() for value in imported.folder.shapes.values()),
        "types": sorted({str(value.dtype).removeprefix("torch.") for value in imported.folder.shapes.values()}),
        "tokens": imported.tokenizer.vocab_size,
        "special_tokens": imported.tokenizer.content["specials"],
        "left_behind": imported.left_behind,
    }
    if options.json:
        print(json.dumps(about))
        return 0
    words = []
    for name, value in imported.options.items():
        words.append(
            f"model.{name}={value if isinstance(value, str) else json.dumps(value)}"
        )  # true and null as they are typed
    say(f"{options.folder}: {about['model_type']}, read as model={about['model']} {' '.join(words)}")
    say(f"{about['parameters']:,} numbers ({', '.join(about['types'])}), read in float32")
    say(f"{about['tokens']:,} tokens of text, and {len(about['special_tokens'])} special ones")
    say(f"left behind: {first_few(about['left_behind'], 6) if about['left_behind'] else 'nothing'}")
    return 0
