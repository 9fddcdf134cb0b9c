"""Several processes of a run: their places, and how they start, meet and end."""
