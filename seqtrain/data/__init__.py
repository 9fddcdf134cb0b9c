"""Data: from files to tokens to batches."""
