"""A CUDA kernel for a sum and its norm: instead of two, and one that rounds, each of which the host has to start.

Steps of one token of each sequence take the time in which the host starts their kernels.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from pumice.plugin import Tensor, Weight
from pumice.plugin.unstable import Node, Segment
from pumice_mlx.kernel_checks import is_right
from pumice_mlx.weights import LARGEST_HALF

THREADS = 512
MOST_ERROR = 0.02  # of results up to about 10, in float16

SOURCE = """
  __shared__ float sums[THREADS / 32];
  const int thread = threadIdx.x;
  const int width = x_shape[1];
  const size_t row = size_t(blockIdx.x) * width;
  float sum = 0;
  for (int i = thread; i < width; i += THREADS) {
    const float value = float(x[row + i]) + float(y[row + i]);
    total[row + i] = value;
    sum += value * value;
  }
  for (int other = 16; other; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
  if (thread % 32 == 0) sums[thread / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < THREADS / 32; i++) sum += sums[i];
  const float scale = 1 / sqrtf(sum / width + epsilon[0]);
  for (int i = thread; i < width; i += THREADS) {
    const float value = total[row + i] * scale * float(weight[i]);
    normed[row + i] = T(sizeof(T) == 2 ? fminf(fmaxf(value, -LARGEST), LARGEST) : value);
  }
"""


@functools.cache
def _kernel() -> Any:
    source = SOURCE.replace("LARGEST", f"{LARGEST_HALF}f")
    return mx.fast.cuda_kernel("pumice_sum", ["x", "y", "weight", "epsilon"], ["total", "normed"], source)


@functools.cache
def _number(value: float) -> mx.array:
    """Return a number on the device: as a constant of a kernel, each would be another kernel to build."""
    return mx.array([value], mx.float32)


def add_and_norm(
    x: mx.array, y: mx.array, weight: mx.array, epsilon: float, type: mx.Dtype
) -> tuple[mx.array, mx.array]:
    """Return the sum of rows ``[t, n]`` as float32, and its norm in a type."""
    total, normed = _kernel()(
        inputs=[x, y, weight, _number(float(epsilon))],
        template=[("T", type), ("THREADS", THREADS)],
        grid=(THREADS * len(x), 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[x.shape, x.shape],
        output_dtypes=[mx.float32, type],
    )
    return total, normed


@functools.cache
def works(type: mx.Dtype) -> bool:
    """Return True if the kernel is right on this machine."""
    return is_right("computes sums and their norms", functools.partial(_error, type), MOST_ERROR)


def _error(type: mx.Dtype) -> float:
    """Return the largest error of sums of random rows, and of their norms."""
    rng = np.random.default_rng(0)
    x, weight = mx.array(rng.normal(size=(2, 700)), mx.float32), mx.array(rng.normal(size=700), mx.float32)
    y = x[::-1].astype(type)
    total, normed = add_and_norm(x, y, weight, 1e-5, type)
    right = x + y
    errors = mx.concatenate([total - right, normed - mx.fast.rms_norm(right, weight, 1e-5)])
    return float(np.abs(np.array(errors.astype(mx.float32))).max())  # NaN if one is


def sums_with_norms(segment: Segment) -> dict[Node, tuple[Node, bool]]:
    """Return the nodes ``add`` of rows, each with the node ``rms_norm`` of its result.

    True if nothing but products with weights reads the norm, which may have their type.
    """
    uses = Counter(tensor for node in segment.nodes for tensor in node.inputs.values())
    uses.update(segment.outputs)
    products = Counter(node.inputs["x"] for node in segment.nodes if node.op == "linear")
    norms = {node.inputs["x"]: node for node in segment.nodes if node.op == "rms_norm" and _has_vector(node)}
    sums = {node: norms[node.output] for node in segment.nodes if node.op == "add" and _is_of_rows(node, norms)}
    return {node: (norm, uses[norm.output] == products[norm.output]) for node, norm in sums.items()}


def _has_vector(node: Node) -> bool:
    weight = node.inputs.get("weight")
    return isinstance(weight, Weight) and len(weight.shape) == 1


def _is_of_rows(node: Node, norms: dict[Tensor, Node]) -> bool:
    shapes: Sequence[Any] = [operand.shape for operand in node.inputs.values()]
    is_weighted = any(isinstance(operand, Weight) for operand in node.inputs.values())
    return node.output in norms and not is_weighted and len(shapes[0]) == 2 and shapes[0] == shapes[1]
