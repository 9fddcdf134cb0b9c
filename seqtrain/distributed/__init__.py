"""Several processes: who they are, how they start, meet and end."""
