"""Labelled series of the UCR archive: what is read, how validation is held out, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.preprocess import prepare_series
from seqtrain.data.sources.series import split_of_series
from seqtrain.data.sources.ucr import UCR, read_table
from seqtrain.errors import UserError
from seqtrain.tasks.sentiment import LabelledExamples

HEAD = "#about\n@problemName a\n@timeStamps false\n@classLabel true x y\n@data\n"


def written(folder: Path, content: str, name: str = "a_TRAIN.ts") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_a_ts_file_gives_channels_missing_values_and_labels(tmp_path):
    table = read_table(written(tmp_path, f"{HEAD}1,?,3:4,5,NaN:x\n\n7:8:y\n"))
    np.testing.assert_array_equal(table.series.values, [[1, 4], [np.nan, 5], [3, np.nan], [7, 8]])
    assert table.series.offsets.tolist() == [0, 3, 4]
    assert table.labels == ("x", "y")
    assert table.series.columns == ("channel 1", "channel 2")


def test_a_tsv_file_gives_the_same_series_as_its_ts_file(tmp_path):
    tsv = read_table(written(tmp_path, "x\t1\tNaN\t3\ny\t7\tNaN\tNaN\n", "a_TRAIN.tsv"))
    ts = read_table(written(tmp_path, f"{HEAD}1,?,3:x\n7:y\n"))
    np.testing.assert_array_equal(tsv.series.values, ts.series.values)
    assert tsv.series.offsets.tolist() == ts.series.offsets.tolist() == [0, 3, 4]
    assert tsv.labels == ts.labels


def test_validation_has_the_same_share_of_each_label_every_time():
    labels = ["x"] * 40 + ["y"] * 10 + ["z"]
    found = split_of_series(labels, validation=0.2, test=0.1)
    assert np.bincount(found[:40]).tolist() == [28, 8, 4]
    assert np.bincount(found[40:50]).tolist() == [7, 2, 1]
    assert found[50] == 0
    assert (found == split_of_series(labels, validation=0.2, test=0.1)).all()


def test_train_and_validation_share_no_series_and_lack_none(tmp_path):
    rows = "".join(f"{n},{n + 1}:{'xy'[n % 2]}\n" for n in range(10))
    written(tmp_path, HEAD + rows)
    written(tmp_path, f"{HEAD}50,51:y\n", "a_TEST.ts")
    source = UCR(path=str(tmp_path))
    seen = []
    for split in ("train", "validation"):
        part = source.split(split)
        begins = part.begin[part.end > part.begin]
        seen += source.series.values[begins, 0].tolist()
        assert [("x", "y")[int(value) % 2] for value in source.series.values[begins, 0]] == source.labels(split, "name")
    assert sorted(seen) == list(range(10))
    assert source.labels("test", "name") == ["y"]


def test_a_model_reads_the_scaled_values_of_each_step_and_whether_one_is_missing_padded_and_cut(tmp_path):
    written(tmp_path, HEAD + "".join(f"{n},?,{n + 2}{',9' * (n % 3)}:{'xy'[n % 2]}\n" for n in range(10)))
    preprocessor, rows = prepare_series(
        UCR(path=str(tmp_path)), ("train",), ("values", "label"), preprocessor=None, say=lambda line: None
    )
    examples = LabelledExamples(rows["train"], preprocessor, max_length=4)
    batch = examples.collate(np.arange(len(rows["train"])), 0, {"loss": len(rows["train"])})
    split, scaling = rows["train"].series, preprocessor.series
    assert split is not None
    assert scaling is not None
    assert (batch.tokens.shape[2], batch.lengths.max(), examples.cut > 0) == (3, 4, True)
    held = np.flatnonzero(split.end > split.begin)
    for lane, number in enumerate(held):
        length = min(int(split.end[number] - split.begin[number]), 4)
        values = split.series.values[split.begin[number] :][:length, 0]
        scaled = np.nan_to_num((values - scaling.mean[0]) / scaling.std[0])
        seen = ~np.isnan(values)
        assert batch.tokens[lane, :length, 0].numpy() == pytest.approx(scaled, abs=1e-6)
        assert batch.tokens[lane, :length, 1].tolist() == seen.tolist()
        assert (batch.tokens[lane, length:] == 0).all()
        assert batch.lengths[lane] == length


def test_values_are_scaled_by_train_alone(tmp_path):
    written(tmp_path, HEAD + "".join(f"{n},{n % 3}:{'xy'[n % 2]}\n" for n in range(10)))
    source = UCR(path=str(tmp_path))
    preprocessor, rows = prepare_series(
        source, ("train", "validation"), ("values", "label"), preprocessor=None, say=lambda line: None
    )
    train = source.split("train")
    values = np.concatenate([source.series.values[a:b] for a, b in zip(train.begin, train.end, strict=True)])
    assert preprocessor.series is not None
    assert preprocessor.series.mean == pytest.approx((values.mean(),))
    assert preprocessor.series.std == pytest.approx((values.std(),))
    assert preprocessor.labels == ("x", "y")
    assert len(rows["train"].labels) == len(rows["train"]) == 8  # type: ignore[arg-type]


FAULTS = {
    "another number of channels": (f"{HEAD}1:2:x\n1:y\n", "line 7 has 1 channels, and the first series has 2"),
    "channels of two lengths": (f"{HEAD}1,2:2:x\n", "line 6 has channels of different lengths (1, 2)"),
    "no label in a row": (f"{HEAD}1,2:?\n", "line 6 has no label"),
    "no labels at all": (HEAD.replace("true x y", "false") + "1,2\n", "has no labels (@classLabel false)"),
    "no value in a series": (f"{HEAD}?,?:x\n", "line 6 holds no value"),
    "a word among values": (f"{HEAD}1,two:x\n", "line 6: 'two' is no number"),
    "infinity": (f"{HEAD}1,inf:x\n", "line 6: inf is no finite number"),
    "time stamps": (HEAD.replace("Stamps false", "Stamps true") + "(0,1):x\n", "has time stamps"),
    "no series": (HEAD, "holds no series"),
    "a text": ("Once upon a time\n", "is no .ts file of the UCR archive"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_file_is_refused_with_its_line(fault, tmp_path):
    content, says = FAULTS[fault]
    path = written(tmp_path, content)
    with pytest.raises(UserError) as raised:
        read_table(path)
    assert str(raised.value).startswith(f"data.path={path}: {says}")


def test_a_label_that_train_lacks_is_refused(tmp_path):
    written(tmp_path, HEAD + "".join(f"{n}:{'xy'[n % 2]}\n" for n in range(10)))
    written(tmp_path, f"{HEAD}5:z\n", "a_TEST.ts")
    source = UCR(path=str(tmp_path))
    with pytest.raises(UserError, match="test row 1 has the label z, which no row of train has"):
        prepare_series(source, ("train", "test"), ("values", "label"), preprocessor=None, say=lambda line: None)
