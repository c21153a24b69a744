"""Widgets that show one drawing or one table each."""
