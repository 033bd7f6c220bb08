"""A CUDA kernel for products of few rows with 4-bit matrices, by matrix units.

MLX reads a matrix once for each of up to 7 rows, at a fifth of the memory's rate, and compiles CUTLASS for half a
minute when it first multiplies more. This kernel reads a matrix once for up to 16 rows. Codes become float16 numbers
in registers; sums are float32.

Each block of threads computes 16 results of all rows; its warps take parts of the columns. A lane has the codes of
whole groups: 32 columns with a scale. The order of columns within a group is that in which codes are unpacked.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import mlx.core as mx
import numpy as np

from pumice_mlx.paged import is_available

THREADS = 256
RESULTS = 16  # of a block of threads for each row
COLUMNS = 128  # of a warp at once
GROUP = 32
MOST_ROWS = 16
MOST_ERROR = 2e-3  # of results of about 1

logger = logging.getLogger("pumice")

HEADER = """
struct alignas(16) Words { unsigned x[4]; };
#ifdef __CUDACC__
__device__ inline void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Two numbers from the lowest codes of both halves of a word: 1024 + code has the bits 0x6400 + code.
__device__ inline unsigned numbers(unsigned codes, unsigned scale, unsigned bias) {
  unsigned plain = (codes & 0x000f000fu) | 0x64006400u;
  asm("sub.f16x2 %0, %0, %1;" : "+r"(plain) : "r"(0x64006400u));
  asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(plain) : "r"(scale), "r"(bias));
  return plain;
}
#endif
__device__ inline unsigned lows(unsigned x, unsigned y) { return (x & 0xffffu) | y << 16; }
__device__ inline unsigned highs(unsigned x, unsigned y) { return x >> 16 | (y & 0xffff0000u); }
"""

SOURCE = """
  constexpr int WARPS = THREADS / 32;
  __shared__ float partial[WARPS][16][8 * TILES];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, place = lane % 4, line = lane / 4;
  const int n_tokens = x_shape[0], n_columns = x_shape[1], n_rows = codes_shape[0];
  const int n_chunks = n_columns / 128, first = warp * n_chunks / WARPS, end = (warp + 1) * n_chunks / WARPS;
  const auto* scale_bits = reinterpret_cast<const unsigned short*>(scales);
  const auto* bias_bits = reinterpret_cast<const unsigned short*>(biases);
  float sums[TILES][4] = {};
  #pragma unroll 4
  for (int chunk = first; chunk < end; chunk++) {
    const int group = 4 * chunk + place;
    Words words[2];
    unsigned scale[2], bias[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const size_t at = size_t(16 * blockIdx.x + line + 8 * i) * (n_columns / 32) + group;
      words[i] = reinterpret_cast<const Words*>(codes)[at];
      scale[i] = scale_bits[at] * 0x10001u, bias[i] = bias_bits[at] * 0x10001u;
    }
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      unsigned pairs[TILES][4];
      #pragma unroll
      for (int t = 0; t < TILES; t++) {
        Words v = {};
        const int token = 8 * t + line;
        if (token < n_tokens) v = *reinterpret_cast<const Words*>(x + size_t(token) * n_columns + 32 * group + 8 * j);
        pairs[t][0] = lows(v.x[0], v.x[2]), pairs[t][1] = highs(v.x[0], v.x[2]);
        pairs[t][2] = lows(v.x[1], v.x[3]), pairs[t][3] = highs(v.x[1], v.x[3]);
      }
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        unsigned a[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) a[i] = numbers(words[i % 2].x[j] >> (8 * h + i / 2 * 4), scale[i % 2], bias[i % 2]);
        #pragma unroll
        for (int t = 0; t < TILES; t++) multiply(sums[t], a, pairs[t][2 * h], pairs[t][2 * h + 1]);
      }
    }
  }
  for (int t = 0; t < TILES; t++)
    for (int i = 0; i < 4; i++) partial[warp][line + i / 2 * 8][8 * t + 2 * place + i % 2] = sums[t][i];
  __syncthreads();
  for (int i = thread; i < 16 * n_tokens; i += THREADS) {
    const int result = i % 16, token = i / 16;
    float sum = 0;
    for (int w = 0; w < WARPS; w++) sum += partial[w][result][token];
    y[size_t(token) * n_rows + 16 * blockIdx.x + result] = T(sum);
  }
"""


@functools.cache
def _kernel() -> Any:
    return mx.fast.cuda_kernel("pumice_few_rows", ["x", "codes", "scales", "biases"], ["y"], SOURCE, HEADER)


def multiply(x: mx.array, codes: mx.array, scales: mx.array, biases: mx.array) -> mx.array:
    """Map float16 rows ``x [t, k]`` to ``[t, m]``; codes are ``[m, k / 8]``, scales and biases ``[m, k / 32]``."""
    n_tokens, n_rows = len(x), len(codes)
    (y,) = _kernel()(
        inputs=[x, codes, scales, biases],
        template=[("T", x.dtype), ("TILES", -(-n_tokens // 8)), ("THREADS", THREADS)],
        grid=(THREADS * (n_rows // RESULTS), 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[(n_tokens, n_rows)],
        output_dtypes=[x.dtype],
    )
    return y


def can_multiply(x_type: mx.Dtype, codes: mx.array, scales: mx.array, biases: mx.array | None, bits: int) -> bool:
    """Return True if the kernel multiplies by a matrix, and is right on this machine."""
    is_known = bits == 4 and codes.ndim == 2 and x_type == mx.float16 and biases is not None
    if not is_known or not is_available():
        return False
    types = {scales.dtype, biases.dtype if biases is not None else None}
    n_rows, n_columns = len(codes), 8 * codes.shape[1]
    return types == {mx.float16} and n_rows % RESULTS == 0 and n_columns % COLUMNS == 0 and works()


@functools.cache
def works() -> bool:
    """Return True if the kernel is right on this machine: random products are those of the dequantized matrix."""
    rng, n_rows, n_columns = np.random.default_rng(0), 2 * RESULTS, 11 * COLUMNS
    words = rng.integers(0, 1 << 32, (n_rows, n_columns // 8), np.uint32)
    scales, biases = (rng.normal(size=(n_rows, n_columns // GROUP)).astype(np.float16) for _ in range(2))
    x = (rng.normal(size=(5, n_columns)) / n_columns).astype(np.float16)
    digits = (words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
    matrix = digits.reshape(n_rows, -1, GROUP) * scales[..., None].astype(np.float32) + biases[..., None]
    try:
        y = multiply(*map(mx.array, (x, words, scales, biases)))
        error = np.abs(np.array(y.astype(mx.float32)) - x.astype(np.float32) @ matrix.reshape(n_rows, -1).T).max()
    except (RuntimeError, ValueError, TypeError) as failure:
        logger.info("mlx: no kernel multiplies few rows: %s", failure)
        return False
    if not error <= MOST_ERROR:
        logger.info("mlx: the kernel that multiplies few rows is not used, since its results are wrong by %.1e", error)
    return bool(error <= MOST_ERROR)
