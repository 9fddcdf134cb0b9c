"""Sources: where rows of text come from."""
