"""A CUDA kernel that selects tokens: the highest logits of a row in order, and the token that a ``Pick`` takes of them.

MLX's operations for it are some thirty, each of which the host starts, and four of them take NVRTC 4 seconds to build.
"""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx
import numpy as np

from pumice_mlx.kernel_checks import is_right
from pumice_mlx.paged import is_available

THREADS = 1024

SOURCE = """
  constexpr int WARPS = THREADS / 32;
  __shared__ float highs[2][WARPS], tokens[2][WARPS], best[64];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, row = blockIdx.x;
  const int n_rows = logits_shape[0], n_vocab = logits_shape[1], n_best = counts[0], step = counts[1];
  const int width = n_best == 1 ? 2 : 2 * n_best + 1;
  const unsigned infinities[2] = {0x7f800000u, 0xff800000u};
  const float infinity = *reinterpret_cast<const float*>(infinities);
  const float lowest = *reinterpret_cast<const float*>(infinities + 1), none = 1e9f;
  const float* own = logits + size_t(row) * n_vocab;
  int* results = chosen + size_t(row) * width;
  float high, token;  // of this thread's logits that come after a value and its token
  const auto scan = [&](bool begins, float last, float last_token) {
    high = lowest, token = none;
    for (int i = thread; i < n_vocab; i += THREADS) {
      const float plain = own[i], value = plain == plain ? plain : infinity;
      const bool comes_after = begins || value < last || (value == last && float(i) > last_token);
      if (comes_after && (token == none || value > high)) high = value, token = float(i);
    }
  };
  scan(true, 0, 0);
  for (int place = 0; place < n_best; place++) {
    float top = high, first = token;
    for (int other = 16; other; other /= 2) {
      const float its = __shfl_xor_sync(0xffffffff, top, other), its_token = __shfl_xor_sync(0xffffffff, first, other);
      if (its > top || (its == top && its_token < first)) top = its, first = its_token;
    }
    if (lane == 0) highs[place % 2][warp] = top, tokens[place % 2][warp] = first;
    __syncthreads();
    top = lowest, first = none;
    for (int w = 0; w < WARPS; w++) {
      const float its = highs[place % 2][w], its_token = tokens[place % 2][w];
      if (its > top || (its == top && its_token < first)) top = its, first = its_token;
    }
    if (thread == 0) {
      const float value = own[int(first)];
      results[place] = int(first), results[n_best + place] = *reinterpret_cast<const int*>(&value);
      best[place] = value;
    }
    if (first == token) scan(false, top, first);
  }
  if (thread) return;
  int index = 0;
  const auto parameter = [&](int i) { return columns[i * n_rows + row]; };
  if (n_best > 1 && parameter(3) > 0) {
    const float top_p = parameter(1), min_p = parameter(2), temperature = fmaxf(parameter(3), 1e-10f);
    const int n_top = parameter(0) < n_best ? int(parameter(0)) : n_best;
    float total = 0, sum = 0, warm = 0;
    for (int i = 0; i < n_top; i++) total += expf(best[i] - best[0]);
    int n_kept = 0;
    for (; n_kept < n_top; n_kept++) {
      const float weight = expf(best[n_kept] - best[0]);
      if (!(sum / total < top_p && weight >= min_p)) break;
      sum += weight, warm += expf((best[n_kept] - best[0]) / temperature);
    }
    const float number = parameter(4 + step);
    sum = 0;
    for (; index < n_kept - 1; index++) {
      sum += expf((best[index] - best[0]) / temperature);
      if (sum / warm > number) break;
    }
  }
  picked[row] = results[index];
  if (n_best > 1) results[width - 1] = results[index];
"""


@functools.cache
def _kernel() -> Any:
    return mx.fast.cuda_kernel("pumice_pick", ["logits", "columns", "counts"], ["chosen", "picked"], SOURCE)


@functools.cache
def _counts(n_best: int, step: int) -> mx.array:
    return mx.array([n_best, step], mx.int32)


def choose(logits: mx.array, columns: mx.array | None, n_best: int, step: int) -> tuple[mx.array, mx.array]:
    """Return what is chosen of rows ``[n, n_vocab]``, and the picked tokens ``[n]``.

    The former are ids, the bits of logits, and the picked token of each row ``[n, 2 * n_best + 1]``, without the last
    if ``n_best`` is 1. ``columns``: parameters of picks, and the numbers of all steps ``[4 + n_steps, n]``.
    """
    n_rows = len(logits)
    chosen, picked = _kernel()(
        inputs=[logits, logits if columns is None else columns, _counts(n_best, step)],
        template=[("THREADS", THREADS)],
        grid=(THREADS * n_rows, 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[(n_rows, 2 if n_best == 1 else 2 * n_best + 1), (n_rows,)],
        output_dtypes=[mx.int32, mx.int32],
    )
    return chosen, picked


@functools.cache
def works() -> bool:
    """Return True if the kernel is right on this machine."""
    return is_available() and is_right("selects tokens", _error)


def _error() -> float:
    """Return the share of wrong numbers: ids of random logits in order, and a drawn one of them."""
    rng, n_best = np.random.default_rng(0), 5
    logits = rng.integers(0, 300, (2, 5000)).astype(np.float32)
    # nearly alike, so that the number draws the third of four; without a temperature the first
    columns = np.array([[4, 4], [1, 1], [0, 0], [1e9, 0], [0.6, 0.6]], np.float32)
    chosen, picked = (np.array(array) for array in choose(mx.array(logits), mx.array(columns), n_best, 0))
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, :n_best]
    tokens = np.array([ids[0, 2], ids[1, 0]])
    values = np.take_along_axis(logits, ids, -1).view(np.int32)
    right = np.concatenate([ids, values, tokens[:, None], tokens[:, None]], axis=-1)
    return float(np.mean(np.concatenate([chosen, picked[:, None]], axis=-1) != right))
