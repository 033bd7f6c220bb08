"""Numbers to blocks of GGUF's types, bit for bit as ggml's reference makes them (ggml-quants.c).

Sixteen groups of numbers are worked on at once, one in each lane, so that sums go over a group's numbers in order and
every rounding is the one of a plain loop. Products and sums are rounded apart: none of these kernels may use ``fma``.
"""
