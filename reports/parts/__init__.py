"""Tables and paragraphs that several formats share. Imports `harness.analysis`."""
