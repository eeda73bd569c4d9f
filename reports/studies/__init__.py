"""Studies of the engine itself: A/A pairs, processes, flushes, other engines. Imports `reports.data` and `parts`."""
