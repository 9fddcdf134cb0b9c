"""Demonstrations of claims of theory: one file each, which `seqtrain demo` finds automatically."""
