"""What can be drawn of a results file. Imports `harness.analysis` and `reports.parts`."""
