"""Measures and judges norm backwards; `python -m harness` is the command line."""
