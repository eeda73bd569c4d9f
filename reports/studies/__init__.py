"""Studies of the engine itself: A/A pairs, processes, flushes, engines. Imports `harness.analysis` and `parts`."""
