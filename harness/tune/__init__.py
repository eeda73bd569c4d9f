"""The fastest configuration of an implementation on this device, measured by the engine.

Imports `run` and what stands below it.
"""
