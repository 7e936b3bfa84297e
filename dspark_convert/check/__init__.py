"""dspark-check: the conversion checks of a CI, read from one file and run side by side."""
