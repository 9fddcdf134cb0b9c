"""From several runs to a conclusion: what is alike, how much is chance, and one sentence."""
