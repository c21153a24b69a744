"""Where weights come from, how they are stored, and how stored matrices multiply."""
