"""Adapters: one file a library, here and in the folders of peers. Imports `harness.cases` alone; a file is found."""
