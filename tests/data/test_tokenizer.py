"""Laws of the tokenizers: nothing is lost, nothing depends on how long text is cut, and the files are the library's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tokenizers

from seqtrain.data.tokenizers import encoding
from seqtrain.data.tokenizers.encoding import segments, whole_words
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Tokenizer, Word
from seqtrain.data.tokenizers.saved import load_tokenizer
from seqtrain.errors import UserError

RECIPES: list[Recipe] = [Byte(), Char(), Word(), BPE(size=300)]
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
TRAINING = ["def f(x):\n    return x\n" * 20, "the cat sat on the mat.\n", "# Łódź\n", ""]


@pytest.fixture(scope="module", params=RECIPES, ids=lambda recipe: type(recipe).__name__.lower())
def tokenizer(request) -> Tokenizer:
    return request.param.train(iter(TRAINING))


def test_lossless_means_that_any_text_comes_back(tokenizer):
    texts = [*ODD, *TRAINING] if tokenizer.lossless else ["def f(x):\n"]
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    assert tokenizer.lossless == (tokenizer.unknown is None)


def test_every_id_is_below_the_vocabulary_and_the_start_token_is_none_of_them(tokenizer):
    ids = np.concatenate([tokenizer.encode(text) for text in ODD])
    assert ids.dtype == np.int64
    assert ids.min() >= 0
    assert ids.max() < tokenizer.vocab_size == tokenizer.start == len(tokenizer.tokens)


def test_the_tables_give_the_ids_of_the_library_reading_the_same_file(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [*ODD, *TRAINING]:
        assert tokenizer.encode(text).tolist() == library.encode(text).ids, text


def test_saved_and_loaded_it_is_the_same_tokenizer(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert (loaded.kind, loaded.hash, loaded.vocab_size) == (tokenizer.kind, tokenizer.hash, tokenizer.vocab_size)
    assert [loaded.encode(text).tolist() for text in ODD] == [tokenizer.encode(text).tolist() for text in ODD]
    assert list(tmp_path.iterdir()) == [tmp_path / "tokenizer.json"]


@pytest.mark.parametrize("text", ["".join(ODD), "".join(TRAINING) * 3], ids=["odd", "plain"])
def test_how_long_text_is_cut_changes_no_token(tokenizer, text, monkeypatch):
    whole = tokenizer.encode(text).tolist()
    longest = max(map(len, text.replace("\n", " ").split(" ")))
    for size in (longest + 5, longest + 6, 2 * longest):  # a piece holds the white space before a word too
        monkeypatch.setattr(segments, "__defaults__", (size,))
        assert tokenizer.encode(text).tolist() == whole


def test_documents_are_encoded_one_by_one_whatever_the_batch(tokenizer, monkeypatch):
    documents = [*ODD, *TRAINING]
    expected = [tokenizer.encode(text).tolist() for text in documents]
    monkeypatch.setattr(segments, "__defaults__", (100,))
    for batch in (1, 50, 1 << 20):
        monkeypatch.setattr(encoding, "BATCH", batch)
        assert [ids.tolist() for ids in tokenizer.encode_documents(iter(documents))] == expected


def test_every_token_has_a_printable_form(tokenizer):
    assert all(tokenizer.token_text(token).isprintable() for token in range(tokenizer.vocab_size))


def test_segments_make_up_the_text_and_are_bounded():
    for text in ("", "ab cd\nef", "x" * 100, "aa " * 50, " " * 50):
        parts = list(segments(text, 7))
        assert "".join(parts) == text
        assert max(map(len, parts)) <= 7


def test_parts_that_the_library_is_given_make_up_the_text_and_tear_no_word():
    rng = np.random.default_rng(0)
    for _ in range(200):
        text = "".join(rng.choice(list("ab  \n\t'1.é"), rng.integers(0, 120)))
        parts = list(whole_words(text, 7))
        assert "".join(parts) == text
        for part, after in itertools.pairwise(parts):
            assert not part[-1].isspace()
            assert after[0] in " \n"
    assert list(whole_words("x" * 100, 7)) == ["x" * 100]


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


def test_a_byte_is_its_own_id():
    assert Byte().train([]).encode("Aé").tolist() == [0x41, 0xC3, 0xA9]
    assert Byte().train([]).decode([0xC3, 0x41]) == "\ufffdA"


def test_a_character_that_training_never_saw_is_unknown():
    tokenizer = Char().train(["abc"])
    assert tokenizer.vocab_size == 4
    assert (tokenizer.encode("aXb") == tokenizer.unknown).tolist() == [False, True, False]


def test_every_line_end_is_a_word():
    tokenizer = Word().train([" a b \n\n c"])
    assert [tokenizer.tokens[i] for i in tokenizer.encode(" a b \n\n c")] == ["a", "b", "<eos>", "<eos>", "c"]
    assert tokenizer.decode(tokenizer.encode("a b\n\nc d\n")) == "a b\n\nc <unk>\n"


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


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: BPE(size=100), r"tokenizer\.size=100"),
        (lambda: Word(max_size=0), r"tokenizer\.max_size=0"),
        (lambda: Word(min_count=0), r"tokenizer\.min_count=0"),
        (lambda: Char().train([]), "training text is empty"),
        (lambda: Word().train([""]), "training text is empty"),
        (lambda: BPE().train(iter([])), "training text is empty"),
    ],
)
def test_what_cannot_be_made_is_refused(make, expected):
    with pytest.raises(UserError, match=expected):
        make()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": {"type": "BPE"}, "pre_tokenizer": null}', "\0"])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="no such tokenizer file"):
        load_tokenizer(tmp_path / "nosuch.json")


def test_words_are_split_as_python_splits_them():
    text = "".join(f"{space}w{i}{space}" for i, space in enumerate(SPACES.replace("\n", "")))
    tokenizer = Word().train([text])
    assert [tokenizer.tokens[i] for i in tokenizer.encode(text)] == text.split()
