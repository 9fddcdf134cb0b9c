"""Checks of whether the hub may be used, and answers."""

from __future__ import annotations

import http.client
import os
import threading
import urllib.error
import urllib.request

PATIENCE = 4.0  # seconds until the hub counts as out of reach


def reachable(url: str) -> bool:
    """Return True if the URL answers within PATIENCE seconds; an error page is an answer."""
    answered: list[bool] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PATIENCE).close()
            answered.append(True)
        except urllib.error.HTTPError:  # an answer, too: somebody is there
            answered.append(True)
        except (OSError, ValueError, http.client.HTTPException):
            pass

    asking = threading.Thread(target=ask, daemon=True)  # looking up a name heeds no timeout
    asking.start()
    asking.join(PATIENCE)
    return bool(answered)


def wants_offline() -> bool:
    """Return True if the environment forbids use of the hub."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):  # the words that the hub's own client takes
            return True
    return False
