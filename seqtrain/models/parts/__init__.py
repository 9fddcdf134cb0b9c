"""The encoders and decoders of an encoder-decoder. `Encoded` and State connect any encoder to any decoder."""
