"""The commands: one file each, no logic in them; ``output`` is the one way to a terminal."""
