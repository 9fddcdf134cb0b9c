"""Predictors that know little or nothing of sequences, to hold results against."""
