"""What keys do: each controller has one task and is given what it needs for it."""
