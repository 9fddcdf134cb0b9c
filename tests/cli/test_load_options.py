"""What `seqtrain.load` cannot take is one line, before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest

import seqtrain
from seqtrain.errors import UserError


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"checkpoint": "x"}, "checkpoint='x': expected 'best' or 'last'"),
        ({"trust": None}, "trust=None: expected a list of texts; leave it out for none"),
        ({"trust": [1]}, "trust=[1]: expected a list of texts; leave it out for none"),
        ({"trust": "my_package"}, "trust='my_package': expected a list; write trust=['my_package']"),
    ],
)
def test_an_option_without_such_a_value_is_one_line(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as refused:
        seqtrain.load("nowhere", **options)
    assert refused.value.lines == (told,)
