"""A CUDA kernel for products of few rows with matrices of 4 or 8 bits, by matrix units.

MLX reads a matrix once for each of up to 7 rows, at a fifth of the memory's rate, and compiles CUTLASS for half a
minute when it first multiplies more. This kernel reads a matrix once for up to 16 rows. Codes become float16 numbers
in registers; sums are float32.

Each block of threads computes 16 results of all rows; its warps take parts of the columns. A lane has the codes of
whole groups: 32 columns with a scale. The order of columns within a group is that in which codes are unpacked.
"""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx
import numpy as np

from pumice_mlx.kernel_checks import is_right
from pumice_mlx.paged import is_available

THREADS = 256
RESULTS = 16  # of a block of threads for each row
COLUMNS = 128  # of a warp at once
GROUP = 32
MOST_ROWS = 16
LEAST_MANY = 33  # rows from which on all products of MLX are the same kernel; it builds another one for up to 32
MOST_ERROR = 2e-3  # of the largest result

HEADER = """
struct alignas(16) Words { unsigned x[4]; };
#ifdef __CUDACC__
__device__ inline void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline unsigned scaled(unsigned plain, unsigned scale, unsigned bias) {
  asm("sub.f16x2 %0, %0, %1;" : "+r"(plain) : "r"(0x64006400u));
  asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(plain) : "r"(scale), "r"(bias));
  return plain;
}
#endif
__device__ inline unsigned lows(unsigned x, unsigned y) { return (x & 0xffffu) | y << 16; }
__device__ inline unsigned highs(unsigned x, unsigned y) { return x >> 16 | (y & 0xffff0000u); }
// Two of 8 codes of 4 bits, or of 4 codes of 8 bits, each below the bits of 1024 as a float16.
template <int BITS> __device__ unsigned plain(unsigned codes, int pair) {
  if (BITS == 4) return (codes >> 4 * pair & 0x000f000fu) | 0x64006400u;
  return (codes >> 16 * pair & 0xffu) | (codes >> 16 * pair << 8 & 0xff0000u) | 0x64006400u;
}
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
    Words words[2][BITS / 4];
    unsigned scale[2], bias[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const size_t at = size_t(16 * blockIdx.x + line + 8 * i) * (n_columns / 32) + group;
      #pragma unroll
      for (int w = 0; w < BITS / 4; w++) words[i][w] = reinterpret_cast<const Words*>(codes)[BITS / 4 * at + w];
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
        pairs[t][0] = BITS == 8 ? v.x[0] : lows(v.x[0], v.x[2]);
        pairs[t][1] = BITS == 8 ? v.x[1] : highs(v.x[0], v.x[2]);
        pairs[t][2] = BITS == 8 ? v.x[2] : lows(v.x[1], v.x[3]);
        pairs[t][3] = BITS == 8 ? v.x[3] : highs(v.x[1], v.x[3]);
      }
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        unsigned a[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          const Words* own = words[i % 2];
          const unsigned word = BITS == 8 ? own[j / 2 * (BITS / 8)].x[j % 2 * 2 + h] : own[0].x[j];
          a[i] = scaled(plain<BITS>(word, BITS == 8 ? i / 2 : 2 * h + i / 2), scale[i % 2], bias[i % 2]);
        }
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
    """Map float16 rows ``x [t, k]`` to ``[t, m]``; codes are ``[m, words]``, scales and biases ``[m, k / 32]``."""
    n_tokens, n_rows = len(x), len(codes)
    bits = 32 * codes.shape[1] // x.shape[1]
    (y,) = _kernel()(
        inputs=[x, codes, scales, biases],
        template=[("T", x.dtype), ("BITS", bits), ("TILES", -(-n_tokens // 8)), ("THREADS", THREADS)],
        grid=(THREADS * (n_rows // RESULTS), 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[(n_tokens, n_rows)],
        output_dtypes=[x.dtype],
    )
    return y


def can_multiply(x_type: mx.Dtype, codes: mx.array, scales: mx.array, biases: mx.array | None, bits: int) -> bool:
    """Return True if the kernel multiplies by a matrix, and is right on this machine."""
    if not is_available() or bits not in (4, 8) or codes.ndim != 2 or biases is None:
        return False
    n_rows, n_columns = len(codes), 32 * codes.shape[1] // bits
    is_half = x_type == scales.dtype == biases.dtype == mx.float16
    return is_half and n_rows % RESULTS == 0 and n_columns % COLUMNS == 0 and works(bits)


@functools.cache
def works(bits: int) -> bool:
    """Return True if the kernel is right on this machine."""
    return is_right("multiplies few rows", functools.partial(_error, bits), MOST_ERROR)


def _error(bits: int) -> float:
    """Return the largest error of random products beside those of the dequantized matrix, relative to the largest."""
    rng, n_rows, n_columns = np.random.default_rng(0), 2 * RESULTS, 11 * COLUMNS
    words = rng.integers(0, 1 << 32, (n_rows, n_columns * bits // 32), np.uint32)
    scales, biases = (rng.normal(size=(n_rows, n_columns // GROUP)).astype(np.float16) for _ in range(2))
    x = (rng.normal(size=(5, n_columns)) / n_columns).astype(np.float16)
    digits = (words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & (2**bits - 1)
    matrix = digits.reshape(n_rows, -1, GROUP) * scales[..., None].astype(np.float32) + biases[..., None]
    y = multiply(*map(mx.array, (x, words, scales, biases)))
    right = x.astype(np.float32) @ matrix.reshape(n_rows, -1).T
    return float(np.abs(np.array(y.astype(mx.float32)) - right).max() / np.abs(right).max())
