"""What is kept of a run: the schema of a results file, reading and writing it, and the statistics over it.

Imports `harness.devices`, `harness.cases` and `harness.errors`.
"""
