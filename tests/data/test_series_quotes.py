"""A quote that never closes is told with the line where it opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.errors import UserError
from tests.support.series import csv, table


@pytest.mark.parametrize(
    ("row", "copies"),
    [
        ('"2024-01-02 06:00:00,1,2', 1),
        ('2024-01-02 06:00:00,"1,2', 1),
        ('2024-01-02 06:00:00,1,"2', 1),
        ('2024-01-02 06:00:00,1,"2', 30),
    ],
)
def test_the_line_of_a_quote_that_never_closes_is_named(row: str, copies: int, tmp_path: Path) -> None:
    content = csv(*[row] * copies)
    with pytest.raises(UserError, match=r"a\.csv: line 32: a quote opens and is not closed in that line; close it"):
        _ = table(tmp_path, content).series


def test_quotes_that_close_are_not_blamed_for_another_fault(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'oops' in column a is no number"):
        _ = table(tmp_path, csv('"2024-01-02 06:00:00",oops,2')).series
