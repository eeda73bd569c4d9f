"""Runs, cases and rows as the reports need them: data without text. Imports `harness.records` and `harness.cases`."""
