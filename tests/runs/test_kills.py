"""The promise of resuming, tortured: a kill of every kind of run and sweep; `make kills` makes a thousand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.kills.__main__ import available, campaign
from benchmarks.kills.campaign import Campaign
from benchmarks.kills.kinds import Kind

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with campaign(tmp_path_factory.mktemp("kills"), seed=2) as place:
        yield place


@pytest.mark.parametrize("kind", available(""), ids=lambda kind: kind.name)
def test_a_run_of_any_kind_killed_at_any_moment_ends_as_its_twin(kind: Kind, place: Campaign) -> None:
    story = place.story(kind, 0)
    assert story.verdict == "equal", (story.reason, story.kills)
    assert story.kills
