"""What fills the screen besides the views: help, the runs, loading, and the input line."""
