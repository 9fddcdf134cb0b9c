"""Models that others have trained, in the formats of the Hugging Face hub: read, and written."""
