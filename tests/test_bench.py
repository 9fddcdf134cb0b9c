"""What `make bench` writes takes the place of its own table, and of nothing else on the page."""

from __future__ import annotations

from benchmarks.bench import MARK, with_table


def test_a_new_table_leaves_the_sections_around_it() -> None:
    page = f"# Benchmarks\n\n## Step time\n\n{MARK}\n\nan old table\n\n## What follows\n\ntext\n"
    assert with_table(page, "a new table") == page.replace("an old table", "a new table")
    assert with_table("# Benchmarks\n\n", "a table") == f"# Benchmarks\n\n{MARK}\n\na table\n"
