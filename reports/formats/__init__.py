"""One file a format: what it shows, in which order. Imports `reports.parts`, `harness.analysis` and `reports.plots`."""
