"""Laws of the pictures: what stands at which place of them, and under which name."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from seqtrain.inference.attention_maps import Seen, draw
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.training.callbacks.confusion import plot_confusion
from seqtrain.training.callbacks.curves import TRAIN, VALIDATION, plot_curves
from tests.support.pictures import saved_figures


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return saved_figures(monkeypatch)


def tokens(axes: Axes, side: str) -> list[str]:
    """What is written along an axis."""
    return [label.get_text() for label in (axes.get_xticklabels() if side == "x" else axes.get_yticklabels())]


def shades(axes: Axes) -> np.ndarray:
    """What an image shows, row by row from the top."""
    (image,) = axes.get_images()
    assert image.origin == "upper"
    return np.asarray(image.get_array())


def test_of_confused_labels_the_true_one_is_the_row_and_the_predicted_one_the_column(
    tmp_path: Path, figures: list[Figure]
) -> None:
    table = np.array([[6, 3, 1], [0, 5, 0], [2, 0, 2]])
    labels = ("bad", "fair", "good")
    assert plot_confusion(table, labels, tmp_path / "confusion.png")
    axes = figures[0].axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("true", "predicted")
    assert (tokens(axes, "y"), tokens(axes, "x")) == ([*labels], [*labels])
    expected = np.array([[0.6, 0.3, 0.1], [0, 1, 0], [0.5, 0, 0.5]])
    np.testing.assert_allclose(shades(axes), expected)
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert len(written) == 9
    for (row, column), count in np.ndenumerate(table):
        assert written[column, row] == f"{count}\n{expected[row, column]:.0%}"


RECORDS = [
    {"step": 1, "tokens": 100, "train/loss": 5.0, "lr": 0.3},
    {"step": 2, "tokens": 300, "train/loss": 4.0, "lr": 0.2},
    {"step": 2, "tokens": 300, "validation/loss": 3.5, "validation/accuracy": 0.2},
    {"step": 4, "tokens": 900, "train/loss": 3.0, "lr": 0.1, "gradient_norm": 7.0},
    {"step": 4, "tokens": 900, "validation/loss": 3.75, "validation/accuracy": 0.3},
]


def test_a_learning_curve_names_its_lines_and_marks_the_best_validation(tmp_path: Path, figures: list[Figure]) -> None:
    assert plot_curves(RECORDS, tmp_path / "curve.png", NextToken, title="the run")
    large, *beside = figures[0].axes
    assert figures[0].get_suptitle() == "the run"
    assert (large.get_title("left"), large.get_xlabel()) == ("loss (nats a token)", "tokens read")
    lines = {str(line.get_label()): line for line in large.get_lines()}
    assert lines["train"].get_xydata().tolist() == [[100, 5.0], [300, 4.0], [900, 3.0]]  # type: ignore[union-attr]
    assert lines["validation"].get_xydata().tolist() == [[300, 3.5], [900, 3.75]]  # type: ignore[union-attr]
    assert [to_hex(lines[name].get_color()).upper() for name in ("train", "validation")] == [TRAIN, VALIDATION]
    legend = large.get_legend()
    assert legend is not None
    handles = {text.get_text(): handle for text, handle in zip(legend.get_texts(), legend.get_lines(), strict=True)}
    assert {name: to_hex(handle.get_color()).upper() for name, handle in handles.items()} == {
        "train": TRAIN,
        "validation": VALIDATION,
    }
    assert [text.get_text() for text in large.texts] == ["best 3.5"]
    (marked,) = [line for line in large.get_lines() if line.get_label() not in ("train", "validation")]
    assert set(np.asarray(marked.get_ydata()).tolist()) == {3.5}
    small = {axes.get_title("left"): axes.get_lines()[0].get_xydata().tolist() for axes in beside}  # type: ignore[union-attr]
    assert small == {"learning rate": [[100, 0.3], [300, 0.2], [900, 0.1]], "gradient norm": [[900, 7.0]]}


def test_a_learning_curve_marks_the_largest_accuracy_as_the_best(tmp_path: Path, figures: list[Figure]) -> None:
    records = [
        {"step": step, "tokens": step, "train/accuracy": share, "validation/accuracy": share}
        for step, share in enumerate((0.5, 0.75, 0.625), 1)
    ]
    assert plot_curves(records, tmp_path / "curve.png", Sentiment)
    assert [text.get_text() for text in figures[0].axes[0].texts] == ["best 0.75"]


@pytest.mark.parametrize(
    "plot",
    [
        lambda path: plot_curves(RECORDS, path, NextToken),
        lambda path: plot_confusion(np.eye(2), ("bad", "good"), path),
        lambda path: draw([Seen("layer 1", torch.ones(1, 2, 2), ["a", "b"], ["a", "b"])], path, "title"),
    ],
    ids=["curves", "confusion", "attention"],
)
def test_a_picture_that_is_not_drawn_to_its_end_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plot: Callable[[Path], object]
) -> None:
    def fill(figure: Figure, file: IO[bytes] | Path, **_: object) -> None:
        file.write_bytes(b"half") if isinstance(file, Path) else file.write(b"half")
        raise OSError(errno.ENOSPC, "the disk is full")

    path = tmp_path / "picture.png"
    path.write_bytes(b"whole")
    monkeypatch.setattr(Figure, "savefig", fill)
    with pytest.raises(OSError, match="full"):
        plot(path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("picture.png", b"whole")]


def test_attention_is_drawn_with_a_layer_a_row_a_head_a_column_queries_down_and_keys_across(
    tmp_path: Path, figures: list[Figure]
) -> None:
    queries, keys = ["who", "looks"], ["at", "these", "here"]
    maps = [
        Seen(f"layer {layer} cross", torch.rand(2, 2, 3, generator=torch.Generator().manual_seed(layer)), queries, keys)
        for layer in (1, 2)
    ]
    assert draw(maps, tmp_path / "maps.png", "title") == ""
    drawn = [axes for axes in figures[0].axes if axes.get_title().startswith("head")]
    assert len(drawn) == 4
    for place, axes in enumerate(drawn):
        layer, head = divmod(place, 2)
        assert axes.get_title() == f"head {head + 1}"
        np.testing.assert_array_equal(shades(axes), maps[layer].weights[head].numpy())
    assert [axes.get_ylabel().replace("\n", " ") for axes in drawn[::2]] == ["layer 1 cross", "layer 2 cross"]
    assert (tokens(drawn[0], "y"), tokens(drawn[2], "x")) == (queries, keys)
    heights = [axes.get_position().y0 for axes in drawn]
    assert heights[0] == heights[1] > heights[2] == heights[3]
