"""The report as a file: what is thinned and what survives, what strangers write, and what it says."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from seqtrain.compare.entries import read
from seqtrain.compare.page import curves, report
from seqtrain.compare.verdict import conclusions
from seqtrain.terminal import printable
from tests.support import fake_runs, pages
from tests.support.pages import block, content

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u2028\x00\x1b[31m]]>"


def written(folder: Path, **options: Any) -> str:
    """The report on the runs below a folder."""
    return report.page(conclusions(read([folder])), title="some runs", **options)


def measured_in(text: str) -> list[str]:
    return content(text)["metrics"]


class Elements(HTMLParser):
    """The elements of a page, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plotly is 5 MB that these tests do not look at."""
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* Plotly */")


def summed(differences: list[int]) -> list[int]:
    return [sum(differences[: place + 1]) for place in range(len(differences))]


def test_thinning_keeps_first_last_lowest_and_highest_within_200_points_and_their_weighted_mean_is_that_of_all() -> (
    None
):
    for count in (0, 1, 2, 199, 200, 201, 202, 399, 1000, 12_345):
        for spikes in (0, 17, 100):
            chance = random.Random(count + spikes)
            values = [chance.gauss(1, 0.1) for _ in range(count)]
            if spikes:
                values[::spikes] = [50.0] * len(values[::spikes])
            kept = curves.thinned(values)
            assert len(kept) == min(count, len(kept)) <= 200, count
            assert kept == sorted(set(kept)), count
            if count:
                wanted = {0, count - 1, values.index(min(values)), values.index(max(values))}
                assert wanted <= set(kept), count
            if count <= 200:
                assert kept == list(range(count))
            else:
                allowed = max(0.02, 0.02 * (max(values) - min(values)))  # a digit of 36 of each stretch
                assert weighed(values) == pytest.approx(sum(values) / count, abs=allowed), count


def weighed(values: Sequence[float]) -> float:
    """The mean of the points that are kept, by their weights."""
    kept = curves.thinned(values)
    shares = [int(digit, 36) for digit in curves.weights(values, kept)]
    return sum(share * values[place] for share, place in zip(shares, kept, strict=True)) / sum(shares)


def test_a_flat_curve_keeps_its_mean_and_only_what_is_thinned_has_weights() -> None:
    assert weighed([3.0] * 1000) == 3.0
    records: list[dict[str, Any]] = []
    for step in range(1, 1001):
        record = {"step": step, "train/loss": 1 / step, "system/memory_mb": 800.0 + step, "other": 1.0}
        records.append(record | ({"validation/loss": 2.0} if step % 100 == 0 else {}))
    found = curves.curves(records)
    assert found.weights.keys() == {"train/loss", "system/memory_mb"}
    packed = {name: found.packed(name) for name in ("train/loss", "validation/loss", "other")}
    assert [None if each is None else len(each) for each in packed.values()] == [3, 2, None]


def test_thinning_keeps_the_extremes_of_each_stretch() -> None:
    values = [0.0] * 10_000
    values[4321], values[4322] = 5.0, -5.0  # inside, where neither is an extreme of all
    values[7], values[9000] = 9.0, -9.0
    assert {7, 4321, 4322, 9000} <= set(curves.thinned(values))


def test_curves_hold_each_metric_at_the_places_where_it_was_recorded(tmp_path: Path) -> None:
    records = [
        {"step": step, "tokens": 7 * step, "seconds": step / 8, "train/loss": 1 / step}
        | ({"validation/loss": 2 / step} if step % 300 == 0 else {})
        | ({"train/loss": math.nan} if step == 50 else {})
        for step in range(1, 1001)
    ]
    found = curves.curves([*records, {"note": 1}, {"step": 10**400, "train/loss": 10**400}])
    rows, values = found.metrics["validation/loss"]
    steps, tokens = summed(found.steps), summed(found.tokens)
    assert [steps[row] for row in summed(rows)] == [300, 600, 900]
    assert [tokens[row] for row in summed(rows)] == [2100, 4200, 6300]
    assert values == [curves.short(2 / step) for step in (300, 600, 900)]
    seconds = [found.tick * place for place in summed(found.seconds)]
    assert all(abs(second - step / 8) <= 1000 / 8 / curves.TICKS for second, step in zip(seconds, steps, strict=True))
    places = [steps[row] for row in summed(found.metrics["train/loss"][0])]
    assert len(places) == curves.MOST_POINTS
    assert {1, 1000} <= set(places)
    assert 50 not in places


def test_no_text_of_a_run_can_end_its_script_or_become_markup(tmp_path: Path) -> None:
    run = pages.run(tmp_path / HOSTILE.replace("/", "").replace("\x00", ""), config={"init_from": HOSTILE})
    strange = {"reason": HOSTILE, "command": [HOSTILE], "versions": {HOSTILE: HOSTILE}}
    other = fake_runs.run(tmp_path / "other", 1.2, status="failed", **strange)
    for path in (run, other):
        pages.sample(path, 99_999, HOSTILE)
    text = report.page(conclusions(read([tmp_path])), title=HOSTILE, missing=[HOSTILE])
    assert Elements(text).found == Elements(report.page([], title="none")).found + ["script"] * len(measured_in(text))
    assert "\u2028" not in text
    assert content(text)["missing"] == [HOSTILE]
    assert content(text)["groups"][0]["remarks"][0].endswith(f"failed: {printable(HOSTILE)}")
    assert [run["kept"][0]["text"] for run in block(text, "samples")] == [HOSTILE] * 2
    assert HOSTILE in [run["settings"].get("init_from") for run in content(text)["runs"]]


def test_the_policy_lets_run_what_we_wrote_and_nothing_else(tmp_path: Path) -> None:
    pages.run(tmp_path / "run", records=20)
    text = written(tmp_path)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', text)
    assert policy
    allowed = re.findall(r"'sha256-(.*?)'", policy[1])
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert [report.sha256(script) for script in scripts] == allowed
    assert "default-src 'none'" in policy[1]
    assert "unsafe-eval" not in policy[1]
    assert "connect-src" not in policy[1]  # default-src holds: no network
    assert "script-src 'unsafe" not in policy[1]
    assert re.search(r"connect-src 'self'\"", written(tmp_path, mark='"a"'))


def test_the_page_holds_runs_variants_verdict_samples_and_curves_of_each_group(tmp_path: Path) -> None:
    pages.sweep(tmp_path / "sweep", records=30)
    pages.run(tmp_path / "unlike", hashes={**fake_runs.HASHES, "validation": "e" * 32})
    text = written(tmp_path)
    found = content(text)
    entries = read([tmp_path])
    expected = conclusions(entries)
    assert [group["verdict"] for group in found["groups"]] == [each.sentences for each in expected]
    assert [len(group["runs"]) for group in found["groups"]] == [12, 1]
    assert found["groups"][1]["reason"] == expected[1].group.reason != []
    assert [run["index"] for run in found["runs"]] == [*range(13)]
    by_name = {entry.name: entry for entry in entries}
    samples = block(text, "samples")
    drawn = block(text, f"metric-{found['metrics'].index('validation/bits_per_byte')}")
    for run in found["runs"]:
        entry = by_name[run["name"]]
        assert run["final"] == entry.metric("bits_per_byte")
        assert samples[run["index"]]["kept"] == [{"step": entry.cost("steps"), "text": pages.SAMPLE, "cut": False}]
        last = entry.curve("validation/bits_per_byte", "steps")[1][-1]
        assert drawn[run["index"]][1][-1] == curves.short(last)


def test_the_page_says_whole_why_a_run_does_not_count_and_by_what_it_concludes(tmp_path: Path) -> None:
    reason = "the loss is no number; " + " ".join(30 * ["set a smaller optimizer.lr"])
    fake_runs.sweep(tmp_path / "sweep", {"lstm": [1.5, 1.51], "gpt": [1.7, 1.71]})
    fake_runs.run(tmp_path / "sweep" / "004", seed=3, status="failed", reason=reason)
    found = content(written(tmp_path, x="flops", checkpoint="best"))
    assert found["groups"][0]["remarks"] == [f"does not count: {tmp_path.name}/sweep/004 lstm: failed: {reason}"]
    assert found["groups"][0]["caveats"] == ["lstm: 1 of 3 seeds failed, and the verdict is on the others"]
    assert next(run["reason"] for run in found["runs"] if run["status"] == "failed") == reason
    assert [found[name] for name in ("x", "equal", "which")] == ["flops", "at equal FLOPs", "best"]
    assert content(written(tmp_path))["equal"] == ""


def test_the_command_writes_the_page(seqtrain: Any, tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "sweep", {"lstm": [1.5, 1.51], "gpt": [1.7, 1.71]})
    answer = seqtrain("compare", "sweep", "--x", "tokens", "--html", "report.html", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    found = content((tmp_path / "report.html").read_text())
    assert found["groups"][0]["verdict"][0].startswith("lstm beats gpt")
    assert found["equal"] == "at equal tokens"
    answer = seqtrain("compare", "sweep", "--html", "nowhere/report.html", cwd=tmp_path)
    assert (answer.rc, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith("error: --html nowhere/report.html cannot be written")
