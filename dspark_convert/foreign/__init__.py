"""A plan, which is in mainline's words, in those of another layout."""
