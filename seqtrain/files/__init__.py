"""Files: opened safely and written atomically."""
