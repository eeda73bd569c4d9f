"""Adapters: one file an implementation. Imports `harness.cases` alone; a file that is here is found."""
