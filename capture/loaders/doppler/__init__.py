"""Doppler's harness: its log with profile blocks, and its JSON reports."""
