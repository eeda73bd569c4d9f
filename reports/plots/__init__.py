"""What can be drawn of a results file. Imports `reports.data` and `reports.parts`."""
