"""Which device is here, and what its datasheet says. Imports `harness.cases` and `harness.errors`."""
