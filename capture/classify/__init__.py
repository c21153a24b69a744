"""What names say of rows: the rules as data, the questions to them, and frames filled by the answers."""
