"""Kernels of the CPU backend: Python functions that Numba compiles."""
