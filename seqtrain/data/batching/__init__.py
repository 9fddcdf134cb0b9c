"""Batching: plans, the batches they lay out, and the loader."""
