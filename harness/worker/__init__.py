"""The child process that tries implementations: finds them, prepares, verifies and times them.

The only package that imports `impls`.
"""
