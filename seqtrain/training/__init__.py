"""Training: the learner and all that it trains with."""
