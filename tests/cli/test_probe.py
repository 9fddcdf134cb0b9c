"""Laws of `seqtrain probe`: what it prints, what it says beside it, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seqtrain
from seqtrain.cli import main
from seqtrain.data.leaks import Sketch
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.inference import probes, probing
from seqtrain.models.encoder_decoder import EncoderDecoder
from tests.support.untrained_runs import SENTIMENT, TRANSLATION, make_run

pytest.importorskip("sklearn")
ROWS = [(f"a film that was {'good' if number % 2 else 'bad'}, and long: {number}", number % 2) for number in range(60)]
PAIRS = [(f"der film {number}", f"the film {number}") for number in range(12)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = {"gru": SENTIMENT, "pair": TRANSLATION}
    return {name: make_run(folder / name, *overrides) for name, overrides in made.items()}


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; gives exit code, standard output and standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        rc = main.main(["probe", *map(str, args)])
        return rc, *capsys.readouterr()

    return run


def table(path: Path, rows: Any, head: str = "text\tlabel") -> Path:
    path.write_text("\n".join([head, *("\t".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.mark.long
def test_labels_are_measured_beside_untrained_tfidf_and_the_most_frequent_label(
    runs: dict[str, Path], call: Any, tmp_path: Path
) -> None:
    file = table(tmp_path / "rows.tsv", ROWS)
    rc, out, _ = call(runs["gru"], "--labels", file, "--folds", 3, "--json")
    assert rc == 0
    found = json.loads(out)
    assert list(found["results"]) == ["run", "untrained", "tfidf", "most_frequent"]
    assert found["results"]["tfidf"]["accuracy"]["mean"] == 1
    assert found["results"]["most_frequent"]["accuracy"]["mean"] == pytest.approx(0.5)
    assert {found["rows"], len(found["results"]["run"]["accuracy"]["folds"])} == {60, 3}
    rc, out, _ = call(runs["gru"], "--labels", file, "--folds", 3)
    assert rc == 0
    assert f"{file}: 60 texts, 2 labels, logistic regression, 3 folds" in out
    assert "this run against TF-IDF: accuracy" in out


def test_numbers_are_read_by_ridge_regression_beside_their_mean(
    runs: dict[str, Path], call: Any, tmp_path: Path
) -> None:
    file = table(
        tmp_path / "rows.tsv", [(f"{'long ' * (number % 7)}text {number}", number % 7) for number in range(60)]
    )
    rc, out, _ = call(runs["gru"], "--labels", file, "--numbers", "--json")
    found = json.loads(out)
    assert rc == 0
    assert list(found["results"]) == ["run", "untrained", "tfidf", "mean"]
    assert found["results"]["mean"]["mse"]["mean"] == pytest.approx(4, rel=0.1)
    assert found["results"]["run"]["mse"]["mean"] != found["results"]["untrained"]["mse"]["mean"]
    assert "neighbours" not in found
    folds = [found["results"][name]["mse"]["folds"] for name in ("run", "mean")]
    ahead = sum(one < other for one, other in zip(*folds, strict=True))
    assert ahead > 0, "less is better: the lengths of texts tell the numbers"
    _, out, _ = call(runs["gru"], "--labels", file, "--numbers")
    (line,) = (line for line in out.splitlines() if line.startswith("this run against the mean of the others"))
    assert line.endswith(f"better in {ahead} of {len(folds[0])} folds, worse in {len(folds[0]) - ahead}")


@pytest.mark.long
def test_texts_that_stood_in_train_of_the_run_are_said(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *SENTIMENT)
    file = table(tmp_path / "rows.tsv", ROWS)
    _, _, err = call(run, "--labels", file, "--folds", 3)
    assert "unknown whether the run was trained on it: train.sketch is missing" in err
    Sketch.of([text for text, _ in ROWS[:30]]).save(run / "train.sketch")
    _, _, err = call(run, "--labels", file, "--folds", 3)
    assert "50.0 % of its documents occur in train, so the probe of this run is optimistic" in err.replace(" too,", ",")
    Sketch.of(["nothing of that kind, and long enough to be looked at"]).save(run / "train.sketch")
    _, out, err = call(run, "--labels", file, "--folds", 3, "--json")
    assert "optimistic" not in err
    assert json.loads(out)["leak"]["share"] == 0


def test_rows_that_cannot_be_read_are_left_out_and_said(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    file = table(tmp_path / "my.data.tsv", [*ROWS[:3], ("", 1), *ROWS[3:]])
    rc, out, err = call(runs["gru"], "--labels", file, "--folds", 3, "--json")
    assert rc == 0
    assert f"read {file} as tsv" in err  # a name that contains `data.` is shown as it is
    assert f"{file}: 1 of 61 rows left out, the first because row 4 contains no text" in err
    assert (json.loads(out)["rows"], json.loads(out)["left_out"]) == (60, 1)


def test_python_gives_what_the_command_prints_and_refuses_as_few_folds(
    runs: dict[str, Path], call: Any, tmp_path: Path
) -> None:
    trained = seqtrain.load(runs["gru"])
    texts, labels = [text for text, _ in ROWS], [str(label) for _, label in ROWS]
    _, out, _ = call(runs["gru"], "--labels", table(tmp_path / "rows.tsv", ROWS), "--json")
    assert json.loads(out)["results"] == trained.probe(texts, labels)["results"]
    assert probing.MIN_FOLDS == 3  # as --folds has it
    with pytest.raises(seqtrain.UserError, match="folds=2: must be at least 3"):
        trained.probe(texts, labels, folds=2)


def test_pairs_are_ranked_both_ways_beside_untrained_tfidf_and_chance(
    runs: dict[str, Path], call: Any, tmp_path: Path
) -> None:
    file = table(tmp_path / "pairs.tsv", [*PAIRS, PAIRS[0], ("same", "same")], "german\tenglish")
    asked = ("--pairs", file, "--source-column", "german", "--target-column=english")
    rc, out, _ = call(runs["pair"], *asked)
    assert rc == 0
    assert "1 sources repeat an earlier one; the partner of an equal text counts as correct, too" in out
    assert "1 pairs have equal sides, which every vector finds" in out
    _, out, _ = call(runs["pair"], *asked, "--json")
    found = json.loads(out)
    for way in ("source_to_target", "target_to_source"):
        assert list(found[way]) == ["run", "untrained", "tfidf", "chance"]
        assert found[way]["chance"]["recall@1"] == pytest.approx((12 * 1 + 2 * 2) / 14 / 14, abs=0.02)
    assert found["source_to_target"]["run"] != found["source_to_target"]["untrained"]


def test_sides_that_are_equal_are_found_first_and_a_constant_model_finds_by_chance(runs: dict[str, Path]) -> None:
    trained = seqtrain.load(runs["gru"])
    texts = [f"the {'long ' * (number % 5)}film {'was ' * (number // 5)}" for number in range(20)]  # known letters
    assert probes.probe_pairs(trained, texts, texts)["source_to_target"]["run"]["recall@1"] == 1
    for weight in trained.model.parameters():
        weight.data.zero_()
    found = probes.probe_pairs(trained, texts, texts)["source_to_target"]
    assert found["run"] == pytest.approx(found["chance"])


def test_targets_of_a_vocabulary_of_their_own_are_refused(runs: dict[str, Path]) -> None:
    trained = seqtrain.load(runs["pair"])
    preprocessor = trained.opened.preprocessor
    trained.opened.preprocessor = type(preprocessor)(
        preprocessor.tokenizer, load_tokenizer(runs["pair"] / "tokenizer.json")
    )
    with pytest.raises(seqtrain.UserError, match=r"separate vocabularies.*task\.shared_vocab=true"):
        probes.probe_pairs(trained, ["a", "b"], ["c", "d"])


def test_a_model_without_vectors_is_refused_before_anything_is_read_by_it(
    runs: dict[str, Path], call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EncoderDecoder, "has_encoder", False)
    file = table(tmp_path / "rows.tsv", ROWS)
    rc, _, err = call(runs["pair"], "--labels", file)
    assert rc == 2
    assert "error: embed: model=encoder_decoder has no hidden states of a text alone" in err
