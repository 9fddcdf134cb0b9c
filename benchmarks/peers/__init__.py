"""Peers beside seqtrain, in an environment of their own: `make bench-peers`."""
