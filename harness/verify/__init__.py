"""Verifies a backward: its error against fp64, its bits over repeated runs, and what it does to memory and state.

Imports `harness.records` and `harness.cases`.
"""
