"""Whether a results file meets its limits, and a second measurement of what failed.

Imports `run` and what stands below it.
"""
