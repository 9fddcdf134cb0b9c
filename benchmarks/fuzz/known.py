"""What the fuzzer has found and is being mended elsewhere: patterns of `example: what is wrong`, each with the reason.

An entry goes when the example holds; the fuzzer still reaches it.
"""

from __future__ import annotations

KNOWN: dict[str, str] = {}
