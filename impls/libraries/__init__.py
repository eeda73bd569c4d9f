"""What several adapters know of the libraries that they call."""
