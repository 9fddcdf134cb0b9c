"""Many runs at once: grids and searches, and the launchers of their trials."""
