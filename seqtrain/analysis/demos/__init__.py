"""Demonstrations of what theory claims: one file each, which `seqtrain demo` finds by itself."""
