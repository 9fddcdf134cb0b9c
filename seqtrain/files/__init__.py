"""Files: opened with care, written whole or not at all."""
