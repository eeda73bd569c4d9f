"""Whether a results file bears out what is asked of it, and measuring once more what failed.

Imports `run` and what stands below it.
"""
