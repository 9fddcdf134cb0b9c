"""YAML of a person or a stranger: what it holds is counted at every depth, before any of it is loaded."""

from __future__ import annotations

import pytest
import yaml

from seqtrain.files.plain_yaml import MAX_VALUES, check_plain

DEEP = "a: &a [[1, 1, 1, 1, 1]]\n" + "".join(
    f"{name}: &{name} [[{', '.join(f'*{below}' for _ in range(10))}]]\n"
    for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("text", [DEEP, f"a: [{'[1, 2, 3], ' * (MAX_VALUES // 4 + 1)}]"], ids=["aliases", "lists"])
def test_values_count_however_deep_they_lie(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="holds more than"):
        check_plain(text, written_by="person")


def test_as_many_values_as_may_be_are_taken() -> None:
    check_plain(f"a: [{'[1, 2], ' * (MAX_VALUES // 3 - 2)}]", written_by="person")
