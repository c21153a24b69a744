"""Work away from the screen: reading and following files, answering questions."""
