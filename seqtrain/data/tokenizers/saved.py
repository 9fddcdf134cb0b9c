"""Loading of saved tokenizers: those trained by seqtrain, and third-party ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqtrain.data.tokenizers.encoding import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    IdTokenizer,
    Tokenizer,
    WordTokenizer,
)
from seqtrain.data.tokenizers.foreign import ForeignTokenizer
from seqtrain.data.tokenizers.tokenizer_file import check_vocabulary
from seqtrain.errors import Unavailable, kind_of
from seqtrain.files.checked import load_json

MAX_BYTES = 1 << 27  # of tokenizer.json


def load_tokenizer(path: Path | str) -> Tokenizer:
    """Read a file that `Tokenizer.save` wrote; raise UserError for any other file."""
    try:
        content = load_json(Path(path), MAX_BYTES)
        if "tokenizer" in content:
            return ForeignTokenizer(content)
        tokenizer_class = _class_of(content)
        check_vocabulary(content, tokenizer_class.kind)  # before the content is used
        return tokenizer_class(content)
    except FileNotFoundError:
        raise Unavailable(f"{path}: no such tokenizer file") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise kind_of(error)(f"{path}: not a tokenizer that seqtrain saved ({error!r})") from None


def _class_of(content: dict[str, Any]) -> type[Tokenizer]:
    """Return the class of a file's tokenizer, by the entries that training writes."""
    before = content["pre_tokenizer"]
    if before["type"] == "WhitespaceSplit":
        return IdTokenizer
    if content["model"]["type"] != "BPE":
        return WordTokenizer if content["normalizer"] else CharTokenizer
    return BPETokenizer if before["use_regex"] else ByteTokenizer
