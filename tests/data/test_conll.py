"""Laws of CoNLL files: what is a token and what is not, and what is wrong with a file in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.conll import Conll
from seqtrain.data.tokenizers.recipes import Word
from tests.support.refused import refusal

NER = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n"
UD_IDS = ("1 Vamos ir VERB", "2-3 al _ _", "2 a a ADP", "3 el el DET", "3.1 x x X", "4 mar mar NOUN")
COMMENTS = "# sent_id = 1\n# text = Vamos al mar\n"
UD_ROWS = "".join("\t".join([*each.split(), *"_" * 6]) + "\n" for each in UD_IDS) + "\n"
UD = COMMENTS + UD_ROWS
# The layout of CoNLL-2003: four columns, parted by blanks; each of these is a word of its own.
SCORES = ("3.5", "6-3", "1-0", "1.", "2-3", "10.1", "#", "-", "--", "1996-08-22", "1", "-1.25", "#1")


def rows(folder: Path, text: str, name: str = "a.conll", **options: Any) -> list[dict[str, str]]:
    (folder / name).write_bytes(text.encode())
    source = Conll(path=str(folder / name), validation_fraction=0.0, **options)
    source.check()
    return list(source.rows("train"))


SENTENCES: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    (NER, {}, [("EU rejects", "B-ORG O"), ("Peter Blackburn", "B-PER I-PER")]),
    (NER, {"label_column": 1}, [("EU rejects", "NNP VBZ"), ("Peter Blackburn", "NNP NNP")]),
    (NER.replace("\n", "\r\n"), {}, [("EU rejects", "B-ORG O"), ("Peter Blackburn", "B-PER I-PER")]),
    ("\ufeffa  X\n \t\nb\tY\n", {}, [("a", "X"), ("b", "Y")]),  # a mark, blanks alone, several blanks
    (UD, {}, [("Vamos a el mar", "VERB ADP DET NOUN")]),
    (UD_ROWS, {}, [("Vamos a el mar", "VERB ADP DET NOUN")]),
    (UD, {"token_column": 2, "label_column": 1}, [("ir a el mar", "Vamos a el mar")]),
    ("1 O\n2 X\n\n", {"token_column": 0}, [("1 2", "O X")]),
    ("#tag\tO\nis\tO\n\n#\tX\n\n", {}, [("#tag is", "O O"), ("#", "X")]),  # tokens of a tweet, and no comments
    ("a O\n# O\n\n", {}, [("a #", "O O")]),  # comments stand before a sentence
    ("# a long comment\na O\n\n", {}, [("a", "O")]),
    ("# O\na O\n\n", {"comments": "none"}, [("# a", "O O")]),
    ("a O\n# O\n\n", {"comments": "all"}, [("a", "O")]),
]


def test_sentences_are_read(tmp_path: Path) -> None:
    for text, options, expected in SENTENCES:
        found = [(row["text"], row["label"]) for row in rows(tmp_path, text, **options)]
        assert found == expected, (text, options)


def test_each_line_of_the_layout_of_conll_2003_is_a_token(tmp_path: Path) -> None:
    for document in ("-DOCSTART- -X- -X- O\n\n", ""):
        # Without a document a line that begins with the sign may be a comment.
        words = SCORES if document else [word for word in SCORES if word[0] != "#"]
        sentence = "".join(f"{word} CD I-NP {'B-PER' if number else 'O'}\n" for number, word in enumerate(words))
        each_alone = "".join(f"{word} CD I-NP O\n\n" for word in words)
        found = rows(tmp_path, document + sentence + "\n" + each_alone, "train.txt")
        assert [row["text"] for row in found] == [" ".join(words), *words], document
        assert found[0]["label"] == " ".join(["O", *["B-PER"] * (len(words) - 1)])


def test_a_conllu_file_by_its_name_has_comments_with_tabs_and_any_number_of_columns(tmp_path: Path) -> None:
    text = "# a\tb\tc\td\n1\ta\ta\tX\n1.1\tb\tb\tY\n# more\n2\t#\t#\tZ\n\n"
    assert rows(tmp_path, text, "a.conllu") == [{"text": "a #", "label": "X Z"}]


def test_jsonl_of_lists_is_read(tmp_path: Path) -> None:
    text = '{"tokens": ["EU", "a"], "labels": ["X", 3]}\n\n{"tokens": [], "labels": []}\n'
    assert rows(tmp_path, text, "a.jsonl") == [{"text": "EU a", "label": "X 3"}]
    assert rows(tmp_path, text, "a.json", format="jsonl")[0]["label"] == "X 3"


FAULTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("a.conll", "a N X\nb X\n\n", {}, "{}:2: 2 columns in this line, 3 in line 1"),
    ("a.conll", "a X\nb X\n", {}, "{}: has no blank line, so it would be one sentence"),
    ("a.conll", "a\n\nb\n", {}, "data.label_column=auto: {}:1 has 1 columns, so it is data.token_column too"),
    ("a.conll", "a X\n\n", {"label_column": 3}, "data.label_column=3: {}:1 has 2 columns, from 0 to 1"),
    ("a.conll", "1 000\tX\n\n", {}, "{}:1: the token '1 000' is empty or contains white space; write another"),
    ("a.conll", "a X\n1\u00a0000 X\n\n", {}, "{}:2: the token '1\\xa0000' is empty or contains white space"),
    ("a.conll", "a\tX\nb\t\n\n", {}, "{}:2: the label '' is empty"),
    ("a.conll", "# O\na O\n\n", {}, "{}:1: may be a comment, or the token #; set data.comments=none"),
    ("a.conllu", UD, {"label_column": 10}, "data.label_column=10: {}:3 has 10 columns, from 0 to 9"),
    ("a.tsv", "1\tEU\tO\n2\ta\tX\n\n", {}, "data.token_column: {}:1: the first column counts from 1 to 2; set"),
    ("a.conll", "a O\n\n# O\nb O\n", {}, "{}:3: may be a comment, or the token #; set data.comments=none"),
    ("a.conll", "\n\n", {}, "{}: contains no sentences"),
    ("a.jsonl", '{"tokens": ["a"], "labels": []}\n', {}, "{}:1: 0 labels for 1 tokens"),
    ("a.jsonl", '{"token": ["a"], "labels": ["X"]}\n', {}, "{}:1: tokens is not a list of strings; the row has keys"),
    ("a.jsonl", '{"tokens": [null], "labels": ["X"]}\n', {}, "{}:1: tokens is not a list of strings"),
]


def test_a_bad_file_is_one_line(tmp_path: Path) -> None:
    for name, text, options, says in FAULTS:
        said = refusal(rows, tmp_path, text, name, **options)
        assert said.startswith(says.format(tmp_path / name)), (text, said)


def test_a_label_that_train_does_not_have_is_told_with_its_sentence_and_file(tmp_path: Path) -> None:
    sentences = [f"w{number} X\nb Y\n\n" for number in range(10)]
    (tmp_path / "train.conll").write_text("".join(sentences))
    path = tmp_path / "dev.conll"
    path.write_text("".join([*sentences[:3], "Paris Z\nb Y\n\n"]))
    source = Conll(path=str(tmp_path / "train.conll"), validation_path=str(path))
    options: dict[str, Any] = {"label_kind": "names", "cache": tmp_path, "say": lambda line: None}
    said = refusal(prepare_rows, source, Word(), ("train", "validation"), ("text", "label"), **options)
    assert said.startswith("data: validation row 4 has the label Z, which no row of train has (X, Y)")
    assert "('Paris b', from " in said
    assert f"{path})" in said


def test_other_files_of_a_folder_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("a X\n\n" * 4)
    (tmp_path / "README.md").write_text("no tokens here")
    assert len(list(Conll(path=str(tmp_path), validation_fraction=0.0).rows("train"))) == 4
