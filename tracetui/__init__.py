"""The explorer: opens, watches and compares kernel profiles in a terminal."""
