"""Quantization to GGUF's types, bit-identical to ggml's reference (ggml-quants.c).

Sixteen groups of numbers are processed at once, one per lane, so sums run over a group's numbers in order and every
rounding equals that of a scalar loop. Products and sums are rounded separately: these kernels must not use ``fma``.
"""
