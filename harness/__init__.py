"""Measures and judges norm backwards; `python -m harness` is the command line."""

__version__ = "0.2.0"  # of the whole project: pyproject.toml and every results file state it
