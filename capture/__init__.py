"""What happened: the event schema, how it is written and how it is read."""
