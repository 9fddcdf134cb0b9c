"""Models: one interface (base.py), their layers, one file each."""
