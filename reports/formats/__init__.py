"""One file a format: what it shows, in which order. Imports `reports.parts`, `reports.data` and `reports.plots`."""
