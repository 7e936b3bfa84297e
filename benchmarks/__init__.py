"""Measures the conversion and the tolerances; not installed."""
