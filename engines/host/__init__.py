"""The machine around the engine: its roofs, its clock, its stdin, its text."""
