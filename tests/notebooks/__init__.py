"""Tests of notebooks/."""
