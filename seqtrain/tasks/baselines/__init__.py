"""Baselines: predictors that use little or nothing of a sequence, for comparison with models."""
