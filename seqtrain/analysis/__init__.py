"""Measurements of the cost, the memory and the order sensitivity of models, compared with theory."""
