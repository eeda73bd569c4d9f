"""Adapters of libraries whose kernels are written in Python for other compilers: CuTe DSL, cuTile, Helion."""
