"""Mixers: the parts of a block by which a token learns of earlier ones, one file a kind."""
