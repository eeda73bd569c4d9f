"""The child process that tries implementations: finds them, prepares, verifies and times them.

The only room that imports `impls`; below it stand `timing`, `verify`, `results`, `devices` and `cases`.
"""
