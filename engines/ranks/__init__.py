"""Several processes that decode one model together."""
