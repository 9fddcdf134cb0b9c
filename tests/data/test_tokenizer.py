"""Laws of the tokenizers: nothing is lost, nothing depends on how long text is cut, and the files are the library's."""

from __future__ import annotations

import itertools

import numpy as np
import tokenizers

from seqtrain.data.tokenizers import encoding
from seqtrain.data.tokenizers.encoding import segments, whole_words
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Tokenizer, Word
from tests.support.refused import refusal

RECIPES: dict[str, Recipe] = {"byte": Byte(), "char": Char(), "word": Word(), "bpe": BPE(size=300)}
SPACES = "".join(chr(code) for code in range(0x110000) if chr(code).isspace())
ODD = [
    "",
    "\n",
    " \n\n  x\n",
    "a\r\nb\tc\x0b\x1c\x1fd\x85e\xa0f\u2028g\u3000h",
    "nul \0 and \x7f",
    "Łódź 🦊👩‍👩‍👧 e\u0301 \ufeff \uffff \U0010ffff",
    "<unk> <eos> a<eos>b <|endoftext|> [UNK]",
    "don't we'll  I'm   12345 x==y!=z '''",
    "".join(f"{space}a{space}{space}b" for space in SPACES),
]
CATS = "the cat sat on the mat and the dog sat on the cat\n" * 30
TRAINING = ["def f(x):\n    return x\n" * 20, "the cat sat on the mat.\n", "# Łódź\n", ""]


TOKENIZERS: dict[str, Tokenizer] = {name: recipe.train(iter(TRAINING)) for name, recipe in RECIPES.items()}


def test_lossless_means_that_any_text_comes_back():
    for name, tokenizer in TOKENIZERS.items():
        texts = [*ODD, *TRAINING] if tokenizer.lossless else ["def f(x):\n"]
        assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts, name
        assert tokenizer.lossless == (tokenizer.unknown is None), name


def test_every_id_is_below_the_vocabulary_and_every_token_can_be_printed():
    for name, tokenizer in TOKENIZERS.items():
        ids = np.concatenate([tokenizer.encode(text) for text in ODD])
        assert ids.dtype == np.int64, name
        assert 0 <= ids.min() <= ids.max() < tokenizer.vocab_size == tokenizer.start == len(tokenizer.tokens), name
        assert all(tokenizer.token_text(token).isprintable() for token in range(tokenizer.vocab_size)), name


def test_the_library_and_a_loaded_tokenizer_give_the_same_ids_for_the_saved_file(tmp_path):
    for name, tokenizer in TOKENIZERS.items():
        path = tmp_path / name / "tokenizer.json"
        path.parent.mkdir()
        tokenizer.save(path)
        assert list(path.parent.iterdir()) == [path]
        library, loaded = tokenizers.Tokenizer.from_file(str(path)), load_tokenizer(path)
        assert (loaded.kind, loaded.hash, loaded.vocab_size) == (name, tokenizer.hash, tokenizer.vocab_size)
        for text in [*ODD, *TRAINING]:
            assert tokenizer.encode(text).tolist() == library.encode(text).ids == loaded.encode(text).tolist(), text


def test_how_long_text_is_cut_changes_no_token(monkeypatch):
    for text, (name, tokenizer) in itertools.product(("".join(ODD), "".join(TRAINING) * 3), TOKENIZERS.items()):
        whole = tokenizer.encode(text).tolist()
        longest = max(map(len, text.replace("\n", " ").split(" ")))
        for size in (longest + 5, longest + 6, 2 * longest):  # a piece holds the white space before a word too
            with monkeypatch.context() as patch:
                patch.setattr(segments, "__defaults__", (size,))
                assert tokenizer.encode(text).tolist() == whole, name


def test_documents_are_encoded_one_by_one_whatever_the_batch(monkeypatch):
    documents = [*ODD, *TRAINING]
    expected = {name: [each.encode(text).tolist() for text in documents] for name, each in TOKENIZERS.items()}
    monkeypatch.setattr(segments, "__defaults__", (100,))
    for batch, (name, tokenizer) in itertools.product((1, 50, 1 << 20), TOKENIZERS.items()):
        monkeypatch.setattr(encoding, "BATCH", batch)
        assert [ids.tolist() for ids in tokenizer.encode_documents(iter(documents))] == expected[name], (name, batch)


def test_how_much_the_library_is_given_at_a_time_changes_no_token(tmp_path, monkeypatch):
    tokenizer = BPE(size=400).train(iter(TRAINING))
    tokenizer.save(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    rng = np.random.default_rng(0)
    # Words that are longer than a part, and every kind of white space beside them.
    words = [*"".join(TRAINING).split(), "x" * 50, "'s", "12345678", "é🦊"]
    texts = [*ODD, *("".join(f"{rng.choice(words)}{rng.choice(list(SPACES))}" for _ in range(60)) for _ in range(30))]
    for size in (1, 7, 30):
        monkeypatch.setattr(whole_words, "__defaults__", (size,))
        for text in texts:
            assert tokenizer.encode(text).tolist() == library.encode(text).ids, text


def test_a_byte_is_its_own_id_and_a_character_that_training_never_saw_is_unknown():
    assert Byte().train([]).encode("Aé").tolist() == [0x41, 0xC3, 0xA9]
    assert Byte().train([]).decode([0xC3, 0x41]) == "\ufffdA"
    tokenizer = Char().train(["abc"])
    assert tokenizer.vocab_size == 4
    assert (tokenizer.encode("aXb") == tokenizer.unknown).tolist() == [False, True, False]


def test_words_are_split_as_python_splits_them_and_every_line_end_is_one():
    tokenizer = Word().train([" a b \n\n c"])
    assert [tokenizer.tokens[i] for i in tokenizer.encode(" a b \n\n c")] == ["a", "b", "<eos>", "<eos>", "c"]
    assert tokenizer.decode(tokenizer.encode("a b\n\nc d\n")) == "a b\n\nc <unk>\n"
    text = "".join(f"{space}w{i}{space}" for i, space in enumerate(SPACES.replace("\n", "")))
    tokenizer = Word().train([text])
    assert [tokenizer.tokens[i] for i in tokenizer.encode(text)] == text.split()


def test_word_options_keep_the_most_frequent():
    text = ["c c c b b a <unk>\n"]  # by frequency, not by the alphabet
    assert Word(max_size=2).train(text).tokens == ["<unk>", "<eos>", "c", "b"]
    assert Word(min_count=3).train(text).tokens == ["<unk>", "<eos>", "c"]
    assert Word().train(text).encode("<unk> zzz").tolist() == [0, 0]


def test_bpe_has_the_size_that_was_asked_and_is_made_the_same_every_time():
    text = [f"word{i} other{i * 7} " * 3 for i in range(300)]
    made = [BPE(size=500).train(iter(text)) for _ in range(3)]
    assert made[0].vocab_size == 500
    assert len({tokenizer.hash for tokenizer in made}) == 1
    assert BPE(size=5000).train(["ab"]).vocab_size == 257


def test_what_cannot_be_made_is_refused():
    for make, expected in (
        (lambda: Char().train([]), "training text is empty"),
        (lambda: Word().train([""]), "training text is empty"),
        (lambda: BPE().train(iter([])), "training text is empty"),
    ):
        assert expected in refusal(make), expected


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path):
    for content in ("", "{}", "[]", '{"model": {"type": "BPE"}, "pre_tokenizer": null}', "\0"):
        (tmp_path / "tokenizer.json").write_text(content)
        assert "tokenizer.json: not a tokenizer" in refusal(load_tokenizer, tmp_path / "tokenizer.json"), content
    assert "no such tokenizer file" in refusal(load_tokenizer, tmp_path / "nosuch.json")


# -- texts in which [MASK] stands for a hidden token ---------------------------------------------------------------


def test_a_mask_in_a_text_stands_where_its_words_token_stood() -> None:
    for recipe, place in itertools.product((BPE(size=300), Word()), (1, 3)):
        tokenizer = recipe.train([CATS])
        words = ["the", "cat", "sat", "on", "the", "mat"]
        expected = tokenizer.encode(" ".join(words))
        assert len(expected) == len(words), "each word is one token"
        expected[place] = tokenizer.mask
        words[place] = "[MASK]"
        assert np.array_equal(tokenizer.encode_masked(" ".join(words)), expected)


def test_where_a_space_is_a_token_it_stays_before_the_mask() -> None:
    for recipe in (Byte(), Char()):
        tokenizer = recipe.train([CATS])
        expected = tokenizer.encode("the  at")
        expected[4] = tokenizer.mask
        assert np.array_equal(tokenizer.encode_masked("the [MASK]at"), expected)
