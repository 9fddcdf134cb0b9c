"""Callbacks of the Lightning Trainer."""
