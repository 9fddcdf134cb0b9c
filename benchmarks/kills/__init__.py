"""The kill campaign: every kind of run under SIGKILL, against its uninterrupted twin; `python -m benchmarks.kills`."""
