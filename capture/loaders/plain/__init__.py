"""Any table with a name and a duration."""
