"""Configurations: composed, checked, and turned into objects."""
