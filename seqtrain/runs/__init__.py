"""Run directories and their files."""
