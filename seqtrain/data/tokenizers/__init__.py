"""Tokenizers: how they are made, and how they encode."""
