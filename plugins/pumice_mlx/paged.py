"""A CUDA kernel for attention of one token of each sequence over the paged cache, which stores their keys and values.

MLX's attention is a single kernel only without an array as its mask, so that its shapes change with each token, and it
copies a cache to store a row while the device may read it. This kernel takes blocks and positions as arrays and writes
to the cache in place: a step is one compiled graph of fixed shapes, and copies nothing.

Each block of threads attends to a part of the positions; the last one to end joins the parts. Writing in place is safe
since steps run in the order of their submission, and only their own tokens attend to the cells that they write.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from pumice_mlx.device import is_gpu
from pumice_mlx.kernel_checks import is_right

THREADS = 256  # of a block
LEAST_KEYS = 128  # of a block
LEAST_ROOM = 512  # positions that a step has room for at least; each doubling compiles another graph
BLOCKS = 256  # to have at least, if every block has more than LEAST_KEYS: about two for each multiprocessor
MOST_VALUES = 32  # of queries that a thread holds
NAMES = ["form", "q", "k", "v", "cosines", "sines", "sinks", "keys", "values", "table", "places", "arrived"]

MOST_ERROR = 0.02  # of results of about 1, in float16 or bfloat16

HEADER = """
template <int V, class C> __device__ void fetch(float* to, const C* from) {
  constexpr int N = V * sizeof(C) % 16 == 0 ? 16 / sizeof(C) : 4;
  struct alignas(N * sizeof(C)) Chunk { C x[N]; };
  for (int i = 0; i < V; i += N) {
    const Chunk chunk = *reinterpret_cast<const Chunk*>(from + i);
    for (int j = 0; j < N; j++) to[i + j] = float(chunk.x[j]);
  }
}
"""

SOURCE = """
  constexpr int V = D / LANES, SLOTS = THREADS / LANES, WARPS = THREADS / 32, ROW = D + 2;
  constexpr int PARTS = KV * HEADS / GROUP;
  __shared__ float merged[WARPS][GROUP][ROW];
  __shared__ bool is_last;
  const float scale_of_scores = form[0];
  const int turn = int(form[1]), half = int(form[2]), reach = int(form[3]);
  const bool stores = form[4], has_sinks = form[5];
  const int thread = threadIdx.x, lane = thread % LANES, slot = thread / LANES, warp = thread / 32;
  const int split = blockIdx.x, part = blockIdx.y, seq = blockIdx.z, kv = part * GROUP / HEADS;
  const int columns = table_shape[1], room = reach && reach < columns * CELLS ? reach : columns * CELLS;
  const int n_keys = (room + gridDim.x - 1) / gridDim.x;
  const int first = places[3 * seq + 1], last = places[3 * seq + 2], begin = first + split * n_keys;
  if (begin > last) return;
  const int end = begin + n_keys < last + 1 ? begin + n_keys : last + 1, n_splits = (last - first) / n_keys + 1;
  const size_t row = (size_t(seq) * PARTS + part) * GROUP;
  const auto turned = [&](const auto* x, int64_t step, int i) {
    const float plain = float(x[i * step]);
    if (turn == 0) return plain;
    const int partner = turn == 1 ? i ^ 1 : i < half ? i + half : i < 2 * half ? i - half : i;
    return plain * float(cosines[seq * D + i]) + float(x[partner * step]) * float(sines[seq * D + i]);
  };
  float query[GROUP][V], sums[GROUP][V], top[GROUP], total[GROUP];
  #pragma unroll
  for (int h = 0; h < GROUP; h++) {
    const auto* from = q + seq * q_strides[0] + (part * GROUP + h) * q_strides[1];
    top[h] = -1e30f, total[h] = 0;
    for (int i = 0; i < V; i++) {
      query[h][i] = turned(from, q_strides[2], lane * V + i) * (scale_of_scores * 1.44269504f);
      sums[h][i] = 0;
    }
  }
  for (int base = begin; base < end; base += SLOTS) {
    const int position = base + slot;
    float key[V] = {}, value[V] = {};
    if (position < end) {
      if (stores && position == last) {
        const auto* new_key = k + seq * k_strides[0] + kv * k_strides[1];
        const auto* new_value = v + seq * v_strides[0] + kv * v_strides[1];
        const size_t to = (size_t(places[3 * seq]) * KV + kv) * D;
        for (int i = 0, d = lane * V; i < V; i++, d++) {
          const C stored_key = C(turned(new_key, k_strides[2], d));
          const C stored_value = C(float(new_value[d * v_strides[2]]));
          key[i] = float(stored_key), value[i] = float(stored_value);
          if (part * GROUP % HEADS) continue;
          const_cast<C*>(keys)[to + d] = stored_key;
          const_cast<C*>(values)[to + d] = stored_value;
        }
      } else {
        const int block = table[seq * columns + position / CELLS];
        const size_t from = ((size_t(block) * CELLS + position % CELLS) * KV + kv) * D + lane * V;
        fetch<V>(key, keys + from), fetch<V>(value, values + from);
      }
    }
    #pragma unroll
    for (int h = 0; h < GROUP; h++) {
      float score = 0;
      for (int i = 0; i < V; i++) score += query[h][i] * key[i];
      for (int other = LANES / 2; other; other /= 2) score += __shfl_xor_sync(0xffffffff, score, other);
      if (position < end) {
        const float high = fmaxf(top[h], score), scale = exp2f(top[h] - high), weight = exp2f(score - high);
        total[h] = total[h] * scale + weight, top[h] = high;
        for (int i = 0; i < V; i++) sums[h][i] = sums[h][i] * scale + weight * value[i];
      }
    }
  }
  #pragma unroll
  for (int h = 0; h < GROUP; h++) {
    float high = top[h];
    for (int other = LANES; other < 32; other *= 2) high = fmaxf(high, __shfl_xor_sync(0xffffffff, high, other));
    const float scale = exp2f(top[h] - high);
    total[h] *= scale;
    for (int other = LANES; other < 32; other *= 2) total[h] += __shfl_xor_sync(0xffffffff, total[h], other);
    for (int i = 0; i < V; i++) {
      sums[h][i] *= scale;
      for (int other = LANES; other < 32; other *= 2) sums[h][i] += __shfl_xor_sync(0xffffffff, sums[h][i], other);
      if (thread % 32 < LANES) merged[warp][h][lane * V + i] = sums[h][i];
    }
    if (thread % 32 == 0) merged[warp][h][D] = high, merged[warp][h][D + 1] = total[h];
  }
  __syncthreads();
  for (int i = thread; i < GROUP * D; i += THREADS) {
    const int h = i / D, d = i % D;
    float high = -1e30f, sum = 0, all = 0;
    for (int w = 0; w < WARPS; w++) high = fmaxf(high, merged[w][h][D]);
    for (int w = 0; w < WARPS; w++) {
      const float scale = exp2f(merged[w][h][D] - high);
      sum += merged[w][h][d] * scale, all += merged[w][h][D + 1] * scale;
    }
    if (n_splits == 1) {
      if (has_sinks) all += exp2f(float(sinks[part * GROUP + h]) * 1.44269504f - high);
      y[(row + h) * D + d] = T(sum / all);
    } else {
      float* to = parts + ((row + h) * gridDim.x + split) * ROW;
      to[d] = sum;
      if (d == 0) to[D] = high, to[D + 1] = all;
    }
  }
  if (n_splits == 1) return;
  unsigned* count = const_cast<unsigned*>(arrived) + seq * PARTS + part;
  __threadfence();
  __syncthreads();
  if (thread == 0) is_last = atomicAdd(count, 1u) == n_splits - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (thread == 0) *count = 0;
  for (int i = thread; i < GROUP * D; i += THREADS) {
    const int h = i / D, d = i % D;
    const float* from = parts + (row + h) * gridDim.x * ROW;
    float high = -1e30f, sum = 0, all = 0;
    for (int s = 0; s < n_splits; s++) high = fmaxf(high, __ldcg(from + s * ROW + D));
    for (int s = 0; s < n_splits; s++) {
      const float scale = exp2f(__ldcg(from + s * ROW + D) - high);
      sum += __ldcg(from + s * ROW + d) * scale, all += __ldcg(from + s * ROW + D + 1) * scale;
    }
    if (has_sinks) all += exp2f(float(sinks[part * GROUP + h]) * 1.44269504f - high);
    y[(row + h) * D + d] = T(sum / all);
  }
"""


@dataclass(frozen=True)
class Heads:
    """The heads of an attention: ``n_queries`` for each of ``n_keys``, of ``width`` values."""

    n_keys: int
    n_queries: int
    width: int

    @property
    def lanes(self) -> int:
        """Threads for a key, each of which has at least 8 of its values; 0: the kernel has none for this width."""
        return max((n for n in (1, 2, 4, 8, 16, 32) if self.width % (4 * n) == 0 and self.width >= 8 * n), default=0)

    @property
    def group(self) -> int:
        """Query heads of a block of threads, which share a key head."""
        values = self.width // self.lanes
        fitting = [n for n in range(1, self.n_queries + 1) if self.n_queries % n == 0 and n * values <= MOST_VALUES]
        return max(fitting, default=1)

    @property
    def parts(self) -> int:
        """Blocks of threads for all heads."""
        return self.n_keys * self.n_queries // self.group


def is_available() -> bool:
    """Return True if MLX computes with CUDA."""
    return is_gpu() and mx.cuda.is_available()


@functools.cache
def works(heads: Heads, type: mx.Dtype, kv_type: mx.Dtype, block_size: int) -> bool:
    """Return True if the kernel is right on this machine: random queries get the results of the formula."""
    error = functools.partial(_error, heads, type, kv_type, block_size)
    return heads.lanes > 0 and is_right("attends to pages", error, MOST_ERROR)


def _error(heads: Heads, type: mx.Dtype, kv_type: mx.Dtype, block_size: int) -> float:
    """Return the largest error of the attention of two sequences, one of which has several parts."""
    rng, lasts = np.random.default_rng(0), np.array([LEAST_ROOM - 3, 5])
    n_blocks, n_heads, scale = -(-LEAST_ROOM // block_size), heads.n_keys * heads.n_queries, heads.width**-0.5
    n_cells = 2 * n_blocks * block_size

    def rows(n: int, n_heads: int, type: mx.Dtype) -> mx.array:
        return mx.array(rng.normal(size=(n, n_heads, heads.width))).astype(type)

    q, k, v = rows(2, n_heads, type), rows(2, heads.n_keys, type), rows(2, heads.n_keys, type)
    keys, values = (rows(n_cells, heads.n_keys, kv_type).reshape(n_cells, -1) for _ in range(2))
    table = rng.permutation(2 * n_blocks).astype(np.int32).reshape(2, -1)
    cells = table[[0, 1], lasts // block_size] * block_size + lasts % block_size
    places = np.stack([cells, 0 * lasts, lasts], axis=1).astype(np.int32)
    arrived = mx.zeros((2 * n_heads,), mx.uint32)
    mx.eval(k, v, keys, values, arrived)
    y = attend(
        q, (k, v), None, (keys, values), arrived, Places(mx.array(table), mx.array(places), block_size, 0), scale
    )
    numbers: list[Any] = [np.array(array.astype(mx.float32)) for array in (y, q, k, v, keys, values)]
    y, q, *new, all_keys, all_values = numbers
    errors = [np.abs(rows[cells] - x.reshape(2, -1)) for rows, x in zip((all_keys, all_values), new, strict=True)]
    for i, last in enumerate(lasts):
        positions = np.arange(last + 1)
        past = table[i, positions // block_size] * block_size + positions % block_size
        shape = (len(past), heads.n_keys, 1, heads.width)
        past_keys, past_values = (
            rows[past].reshape(shape).repeat(heads.n_queries, 2).reshape(len(past), n_heads, -1)
            for rows in (all_keys, all_values)
        )
        weights = np.exp(np.einsum("hd,phd->hp", q[i], past_keys) * scale)
        right = np.einsum("hp,phd->hd", weights / weights.sum(-1, keepdims=True), past_values)
        errors.append(np.abs(right - y[i]))
    return float(np.max([error.max() for error in errors]))  # NaN is one


@functools.cache
def _kernel() -> Any:
    return mx.fast.cuda_kernel("pumice_paged", NAMES, ["y", "parts"], SOURCE, HEADER, ensure_row_contiguous=False)


@functools.cache
def _form(scale: float, turn: int, half: int, reach: int, stores: bool, has_sinks: bool) -> mx.array:
    """Return the parameters of an attention on the device; as constants, each would be another kernel to build."""
    return mx.array([scale, turn, half, reach, stores, has_sinks], mx.float32)


@dataclass(frozen=True)
class Places:
    """The cells of a step.

    Attributes:
        table: the blocks of each sequence ``[n, blocks]``.
        places: the cell to store in, and the first and the last position to attend to, of each sequence ``[n, 3]``.
        reach: positions that a token attends to at most; 0: all.
    """

    table: mx.array
    places: mx.array
    block_size: int
    reach: int


@dataclass(frozen=True)
class Rotation:
    """How queries and keys are turned: ``cos`` and signed ``sin [n, 1, d]``, see the operation ``rope``."""

    cos: mx.array
    sin: mx.array
    neox: bool
    half: int  # pairs of a head


def attend(
    q: mx.array,
    new: tuple[mx.array, mx.array] | None,
    sinks: mx.array | None,
    cache: tuple[mx.array, mx.array],
    arrived: mx.array,
    where: Places,
    scale: float,
    turn: Rotation | None = None,
) -> mx.array:
    """Store ``new`` keys and values ``[n, g, d]`` in a cache ``[cells, g * d]``; attend with queries ``[n, h, d]``.

    Queries and keys are turned first if ``turn`` is given.

    ``arrived`` are zeros for the blocks of threads of all sequences, and are so again when the kernel ends.
    """
    n, n_heads, width = q.shape
    n_keys = cache[0].shape[-1] // width
    heads = Heads(n_keys, n_heads // n_keys, width)
    room = where.table.shape[1] * where.block_size
    room = min(room, where.reach) if where.reach else room
    least = -(-room * n * heads.parts // BLOCKS)
    n_splits = -(-room // max(LEAST_KEYS, least))
    template = {
        "T": q.dtype, "C": cache[0].dtype, "D": width, "KV": n_keys, "HEADS": heads.n_queries, "GROUP": heads.group,
        "LANES": heads.lanes, "CELLS": where.block_size, "THREADS": THREADS,
    }  # fmt: skip
    kind = 0 if turn is None else 2 if turn.neox else 1
    form = _form(float(scale), kind, turn.half if turn else 0, where.reach, new is not None, sinks is not None)
    turns = (q, q) if turn is None else (turn.cos, turn.sin)
    others = [q if sinks is None else sinks, *cache, where.table, where.places, arrived]
    y, _ = _kernel()(
        inputs=[form, q, *(new or cache), *turns, *others],
        template=list(template.items()),
        grid=(THREADS * n_splits, heads.parts, n),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[q.shape, (n, n_heads, n_splits, width + 2)],
        output_dtypes=[q.dtype, mx.float32],
    )
    return y
