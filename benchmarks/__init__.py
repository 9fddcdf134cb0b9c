"""What is measured and not tested; each module is run by name."""
