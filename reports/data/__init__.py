"""Runs, cases and rows as the reports need them: data without text. Imports `harness.results` and `harness.cases`."""
