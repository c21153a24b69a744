"""Pure functions over two runs or more; those of one run are a floor up."""
