"""Adapters of libraries whose kernels are written in Triton; of Liger some are CuTe DSL."""
