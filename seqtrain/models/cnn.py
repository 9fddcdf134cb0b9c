"""The CNN as a model by itself; it stands with the parts, since an encoder-decoder reads sources with it too."""

from seqtrain.models.parts.convolutions import CNN, MAX_FIELD, last_inputs

__all__ = ["CNN", "MAX_FIELD", "last_inputs"]
