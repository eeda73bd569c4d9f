"""Judges gradients: against fp64, against themselves, and against what a careless kernel gets away with."""
