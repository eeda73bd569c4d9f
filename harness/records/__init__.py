"""The results of a run: the schema of the file, reading and writing it, joining over processes, and statistics.

Imports `harness.devices`, `harness.cases` and `harness.errors`.
"""
