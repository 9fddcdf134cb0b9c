"""Checks of a local data set's untrusted metadata, before `datasets` reads it: it may name any file or host."""

from __future__ import annotations

import http.client
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from seqtrain.errors import UserError, kind_of
from seqtrain.files.checked import load_json, read_checked, stays_within
from seqtrain.files.untrusted import LOADER, check_plain

MAX_STATE_BYTES = 1 << 24
MAX_ABOUT_BYTES = 1 << 20


def check_below(path: str, folder: Path | None, files: Iterable[str]) -> None:
    """Raise UserError for a file outside of `folder`.

    Args:
        path: The option `data.path`, for the message.
        folder: The local data set; None: it is on the hub, and every file must be a URL.
        files: Paths or URLs that the data set names.
    """
    for file in files:
        if folder is None:
            is_below = "://" in file
        else:
            home = folder.resolve()
            # Both the name and the resolved path are checked: `..` may lead out, and so may a link.
            is_below = Path(os.path.abspath(file)).is_relative_to(home) and stays_within(Path(file), home)
        if not is_below:
            raise _not_below(path, file)


def check_metadata(path: str, folder: Path) -> None:
    """Raise UserError for metadata that would make `datasets` fail, wait, or read outside of a local data set."""
    try:
        within = next(folder.rglob("*::*"), None)  # fsspec reads :: as a chained URL
    except RecursionError:
        raise UserError(f"data.path={path}: folders are nested too deeply to be searched; move the files up") from None
    if within is not None:
        raise UserError(f"data.path={path}: {within.name}: a name with :: would be read as a URL; rename it")
    for name in ("README.md", ".huggingface.yaml"):
        with _reading(path, folder / name) as file:
            for config in _card(file).get("configs") or []:
                _check_names(path, folder, folder, _texts([config.get("data_files"), config.get("data_dir")]))
    with _reading(path, folder / "dataset_infos.json") as file:
        read_checked(file, MAX_ABOUT_BYTES)
    homes = [folder]  # a copy of several splits is a folder of copies
    with _reading(path, folder / "dataset_dict.json") as file:
        splits = load_json(file, MAX_ABOUT_BYTES)["splits"]
        _check_names(path, folder, folder, splits)
        homes += [folder / split for split in splits]
    for home in homes:
        with _reading(path, home / "dataset_info.json") as file:
            read_checked(file, MAX_ABOUT_BYTES)
        with _reading(path, home / "state.json") as file:
            stored = load_json(file, MAX_STATE_BYTES)["_data_files"]
            _check_names(path, folder, home, [each["filename"] for each in stored])


@contextmanager
def errors_in_one_line(place: str) -> Iterator[None]:
    """Convert any exception of `datasets` or pyarrow into a UserError with one line.

    Args:
        place: The option at the beginning of the line.

    Raises:
        UserError: The block raised an exception.
    """
    try:
        yield
    except UserError:
        raise
    except StopIteration:  # of `datasets`, where a file is empty; a generator that lets it through would just end
        raise UserError(f"{place}: contains a file without rows; remove the file") from None
    except Exception as error:
        message = str(error)
        if error.__cause__:  # `datasets` wraps the actual error in a general one
            message += f": {error.__cause__}"
        line = " ".join(message.split()) or type(error).__name__
        raise kind_of(error)(f"{place}: {line}") from error


@contextmanager
def _reading(path: str, file: Path) -> Iterator[Path]:
    """Turn errors of reading the file in the block into one line; ignore a missing file."""
    try:
        yield file
    except FileNotFoundError:
        if os.path.lexists(file):
            raise UserError(f"data.path={path}: {file.name} is a broken link; remove it") from None
    # The other errors: the content is not of the structure that `datasets` writes.
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        raise kind_of(error)(f"data.path={path}: {file.name} cannot be read: {error}") from None


def _card(file: Path) -> dict[str, Any]:
    """Return the YAML at the beginning of a README, or of a YAML file."""
    from huggingface_hub.repocard import REGEX_YAML_BLOCK  # to check the same part that `datasets` reads

    text = read_checked(file, MAX_ABOUT_BYTES).decode("utf-8")
    if file.name == "README.md":
        block = REGEX_YAML_BLOCK.search(text)
        if block is None:
            return {}
        text = block[2]
    check_plain(text, written_by="person")
    return yaml.load(text, LOADER) or {}


def _texts(value: Any) -> Iterator[str]:
    """Yield every string in nested lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _check_names(path: str, folder: Path, home: Path, names: Iterable[str]) -> None:
    """Raise UserError unless each name, or pattern, is relative to `home` and below `folder`."""
    for name in names:
        if ":" in name:
            raise UserError(
                f"data.path={path}: names {name}, a URL or a name with a colon; download the file to this folder, with "
                "a name without a colon"
            )
        # For a pattern this is not sufficient: check_below checks the files that it matches.
        if os.path.isabs(name) or ".." in Path(name).parts or not stays_within(home / name, folder):
            raise _not_below(path, name)


def _not_below(path: str, name: str) -> UserError:
    return UserError(f"data.path={path}: names {name}, which is outside of this folder; move the file into it")


PATIENCE = 4.0  # seconds until the hub counts as out of reach


def reachable(url: str) -> bool:
    """Return True if the URL answers within PATIENCE seconds; an error page is an answer."""
    answered: list[bool] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PATIENCE).close()
            answered.append(True)
        except urllib.error.HTTPError:  # an error page is an answer, too
            answered.append(True)
        except (OSError, ValueError, http.client.HTTPException):
            pass

    asking = threading.Thread(target=ask, daemon=True)  # in a thread, because DNS look-ups ignore the timeout
    asking.start()
    asking.join(PATIENCE)
    return bool(answered)


def wants_offline() -> bool:
    """Return True if the environment forbids use of the hub."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):  # as in huggingface_hub
            return True
    return False
