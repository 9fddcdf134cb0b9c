"""Trained runs in use: predictions, embeddings, attention."""
