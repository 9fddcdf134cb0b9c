"""Many runs at once: grids and searches, and who launches their trials."""
