"""Values and errors of a configuration in words."""

from __future__ import annotations

import re
from typing import Any

from omegaconf.errors import OmegaConfBaseException

# How Hydra tells that a file of one group chose an option of another group, and looked for it inside its own.
NESTED_OVERRIDE = re.compile(r"No earlier Group Default for '(\w+)@(\w+)\.\1' exists to override\.")


def show(value: Any) -> str:
    """Return a value as the user would type it."""
    if isinstance(value, list):
        return f"[{','.join(map(show, value))}]"
    if isinstance(value, dict):
        items = [f"{key}:{show(item)}" for key, item in value.items()]
        return f"{{{','.join(items)}}}"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def first_lines(error: BaseException) -> str:
    """Return the message of an error of Hydra, OmegaConf or YAML on one line, without search paths and addresses."""
    # Hydra puts its own error around OmegaConf's, whose words name the key.
    if isinstance(error.__cause__, OmegaConfBaseException):
        error = error.__cause__
    message = re.split(r"\n\s*(?:full_key:|object_type=|Config search path:|See https?:)", str(error))[0]
    message = NESTED_OVERRIDE.sub(r"It was looked for inside \2: write `override /\1@_group_: ...`", message)
    return " ".join(message.split())
