"""A tokenizer of others: its ids as `tokenizers` gives them, in our order, with nothing cut or filled."""

from __future__ import annotations

import json
import pydoc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from seqtrain.data.tokenizers.encoding import AT_A_TIME
from seqtrain.data.tokenizers.foreign import PATTERNS, ForeignTokenizer, load_tokenizer
from seqtrain.tasks.tagged import word_ends

SOURCE = Path(pydoc.__file__).read_text()
TEXTS = [*SOURCE.splitlines()[:500], SOURCE[: 3 * AT_A_TIME], "naïve Café Ελλάδα 日本語 हिन्दी\t x!\n\n y  z \r\n", ""]


def wordpiece() -> Any:
    made: Any = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator([SOURCE], trainers.WordPieceTrainer(vocab_size=500, special_tokens=specials))
    made.enable_truncation(4)
    made.enable_padding(length=4)
    return made


def byte_level(pattern: str | None) -> Any:
    made: Any = Tokenizer(models.BPE())
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern is not None:
        whole = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), whole])
    made.pre_tokenizer, made.decoder = whole, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([SOURCE], trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet))
    made.add_special_tokens(["<|endoftext|>"])
    return made


def metaspace() -> Any:
    made: Any = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.train_from_iterator([SOURCE], trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<s>"]))
    return made


MADE: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "wordpiece": (wordpiece, [2, 3, 4]),
    "gpt2": (lambda: byte_level(None), [500]),
    **{f"pattern {len(pattern)}": (partial(byte_level, pattern), [500]) for pattern in PATTERNS},
    "metaspace": (metaspace, [1]),
}


@pytest.mark.parametrize("name", MADE)
def test_the_ids_are_those_of_the_library_in_our_order_however_long_the_text(name: str, tmp_path: Path) -> None:
    make, specials = MADE[name]
    made = make()
    rows = made.get_vocab_size() + 3  # the embedding has some rows more
    tokenizer = ForeignTokenizer({"tokenizer": json.loads(made.to_str()), "rows": rows, "specials": specials})
    made.no_truncation()
    made.no_padding()
    for text in TEXTS:
        expected = made.encode(text, add_special_tokens=False).ids
        assert tokenizer.theirs[tokenizer.encode(text)].tolist() == expected
    assert tokenizer.vocab_size == rows - len(specials)
    assert tokenizer.theirs[tokenizer.vocab_size :].tolist() == specials
    if tokenizer.lossless:
        assert [tokenizer.decode(tokenizer.encode(text)) for text in TEXTS] == TEXTS
        assert tokenizer.text_lengths(tokenizer.encode(SOURCE)).sum() == len(SOURCE.encode())
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert (again.hash, again.encode(SOURCE).tolist()) == (tokenizer.hash, tokenizer.encode(SOURCE).tolist())


def test_no_text_spells_a_special_token() -> None:
    made, specials = wordpiece(), [2, 3, 4]
    tokenizer = ForeignTokenizer({"tokenizer": json.loads(made.to_str()), "rows": 500, "specials": specials})
    assert tokenizer.encode("a [SEP] b [CLS]").max() < tokenizer.vocab_size
    assert tokenizer.encode_masked("a [MASK] b").tolist().count(tokenizer.mask) == 1


def test_each_word_ends_in_its_last_token_though_accents_are_not_read() -> None:
    tokenizer = ForeignTokenizer({"tokenizer": json.loads(wordpiece().to_str()), "rows": 500, "specials": [2, 3, 4]})
    text = "The unbelievable naïve café, ok"
    tokens = tokenizer.encode(text)
    ends = word_ends(tokenizer, text, tokens)
    begins = np.array([0, *(ends[:-1] + 1)])
    joined = tokenizer.joins(tokens)
    read = [
        "".join(tokenizer.tokens[token].removeprefix("##") for token in tokens[begin : end + 1])
        for begin, end in zip(begins, ends, strict=True)
    ]
    assert read == ["the", "unbelievable", "naive", "cafe,", "ok"]
    assert not joined[begins].any()
