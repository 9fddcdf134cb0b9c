"""The fuzzer: examples that nobody would think of, held against one law; `make test-long` runs a fixed set of them.

FUZZ_SEED=7 asks another set, FUZZ_EXAMPLES=20 twenty times as many:

    FUZZ_SEED=7 FUZZ_EXAMPLES=20 .venv/bin/python -m pytest -m long tests/fuzz
"""
