"""The fastest configuration that an implementation offers, for each case on this device, measured by the engine.

Imports `run` and what stands below it.
"""
