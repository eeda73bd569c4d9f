"""A run over many GPUs: an actor of Ray owns each, and this process writes the results. Only `cluster` imports Ray."""
