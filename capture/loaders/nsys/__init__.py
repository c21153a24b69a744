"""Nsight Systems: SQLite exports, and what 'nsys stats' prints."""
