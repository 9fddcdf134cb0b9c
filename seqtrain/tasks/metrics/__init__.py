"""Metrics of whole texts as sums over sentences, so that no score depends on how sentences were batched."""
