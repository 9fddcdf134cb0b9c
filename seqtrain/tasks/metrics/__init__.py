"""Metrics as sums over sentences or targets, so that no score depends on the batches."""
