"""Which runs `seqtrain compare` reads, by which keys they are chosen, and in which order they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from seqtrain.compare import records
from seqtrain.compare.entries import Entry, read
from seqtrain.compare.filters import chosen
from seqtrain.compare.verdict import conclusions
from seqtrain.errors import UserError
from tests.support import fake_runs, filter_cases

VARIANTS = {"lstm": (1.5, 1.51, 1.52), "gpt": (1.63, 1.62, 1.64)}


def test_sort_takes_settings_metrics_and_costs_either_way(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1", 1.5, seed=1, tokens_a_second=30.0)
    fake_runs.run(tmp_path / "2", 1.4, seed=3, tokens_a_second=10.0)
    fake_runs.run(tmp_path / "3", 1.6, seed=2, tokens_a_second=20.0)
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "config.yaml").write_text(yaml.safe_dump(fake_runs.CONFIG | {"seed": 9}))
    (tmp_path / "4" / "metrics.jsonl").touch()
    found = conclusions(read([tmp_path]))
    for key, order in {
        "seed": "1324",
        "bits_per_byte": "2134",
        "-loss": "3124",
        "-seconds": "2314",
        "-final": "3124",
    }.items():
        rows = records.rows(found, sort=key)
        assert "".join(str(row["name"])[-1] for row in rows) == order


def test_a_run_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "sweep", VARIANTS)
    assert len(read([tmp_path, tmp_path / "sweep", tmp_path / "sweep" / ".." / "sweep" / "000"])) == 6


def test_runs_of_one_name_keep_the_names_that_were_typed(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        fake_runs.run(tmp_path / folder / "run")
    paths = [tmp_path / folder / "run" for folder in ("a", "b")]
    assert [entry.name for entry in read(paths)] == [str(path) for path in paths]


def test_runs_are_sorted_by_the_best_or_the_final_value_as_asked(tmp_path: Path) -> None:
    for name, final, best in (("0", 2.0, 1.0), ("1", 1.0, 0.9), ("2", 3.0, 0.5)):
        fake_runs.run(tmp_path / name, final, values=(best,))
    found = conclusions(read([tmp_path]))
    for sort, order in {None: "102", "final": "102", "-final": "201", "best": "210", "-best": "012"}.items():
        assert "".join(str(row["name"])[-1] for row in records.rows(found, sort=sort)) == order


# -- `--where`; the page's filter has the same cases ----------------------------------------------------------------


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return read([filter_cases.runs(tmp_path_factory.mktemp("runs"))])


def answer(entries: list[Entry], text: str) -> str:
    """Return the names of the runs that are so, or the message without the option."""
    try:
        return "".join(entry.path.name for entry in chosen(entries, [text]))
    except UserError as error:
        return str(error).removeprefix(f"--where {text}: ")


def test_where_keeps_the_runs_that_are_so_and_says_what_it_does_not_understand(entries: list[Entry]) -> None:
    for text, expected in filter_cases.CASES.items():
        found = answer(entries, text)
        if expected.startswith("!"):
            assert expected[1:] in found, text
        else:
            assert found == (expected or "none of 4 runs matches"), text


def test_filters_must_all_hold(entries: list[Entry]) -> None:
    assert [entry.path.name for entry in chosen(entries, ["seed!=2", "lr>0.003", "status=finished"])] == ["1"]
    with pytest.raises(UserError, match=r"^--where lr>0\.003 model=gpt: none of 4 runs matches$"):
        chosen(entries, ["lr>0.003", "model=gpt"])
