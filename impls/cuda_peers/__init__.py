"""Adapters of libraries whose kernels are written in CUDA C++."""
