"""The sentences about a comparison.

decision: the first lines: each phase, what carries its change, and the headline
change_findings: numbered sentences with their rows, and what cannot be concluded
"""
