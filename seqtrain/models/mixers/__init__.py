"""Mixers: the part of a block that passes information from earlier tokens to later ones, one file per kind."""
