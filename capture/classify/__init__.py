"""What a name tells of a row: its layer, its role, its category and its phase."""
