"""Times backwards: the sample order is engine.py, what touches a device is cuda.py and cpu.py."""
