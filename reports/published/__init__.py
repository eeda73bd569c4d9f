"""All that is written from published results at once: the reader's page, and the documents of a checkout."""
