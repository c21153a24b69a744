"""Pure functions over two runs or more; those over one run are in the room above."""
