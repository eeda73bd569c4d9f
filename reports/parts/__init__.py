"""Tables and paragraphs that several formats share. Imports `reports.data`."""
