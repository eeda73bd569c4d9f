"""What is known of a run, a case and a row, without a word of text. Imports `harness.results` and `harness.cases`."""
