"""The fuzzer: random command lines, data files, run directories and checkpoints, held against one law.

`make fuzz` asks a fixed set of examples. FUZZ_SEED=7 asks another set, FUZZ_EXAMPLES=20 twenty times as many:

    make fuzz FUZZ_SEED=7 FUZZ_EXAMPLES=20
"""
