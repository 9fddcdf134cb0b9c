"""The two halves of an encoder-decoder, each of several kinds: any encoder meets any decoder in `Encoded` and State."""
