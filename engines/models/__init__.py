"""Models as data."""
