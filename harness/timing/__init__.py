"""The timing engine: engine.py has the order of events, cuda.py and cpu.py talk to the device.

Imports `results`, `devices` and `cases`.
"""
