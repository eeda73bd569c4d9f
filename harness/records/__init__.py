"""The results of a run: the schema of the file, reading it, writing it, settings, and why something is as it is.

Imports `harness.devices`, `harness.cases` and `harness.errors`.
"""
