"""Tasks: what a batch means, one file each."""
