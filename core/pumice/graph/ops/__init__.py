"""The operations of graphs. ``Ops`` is the part of the builder that architectures call.

Tensors are float32 unless noted otherwise. Backends implement operations by name; the NumPy backend is their executable
definition.
"""

from __future__ import annotations

from typing import Any

from pumice.graph.operation import Operation
from pumice.graph.ops import arrange, attend, elementwise, norms, recurrent, route, rows


class Ops:
    """Every operation as a method, which checks its operands and adds a node."""

    embedding = rows.embedding
    ngram_rows = rows.ngram_rows
    get_rows = rows.get_rows
    linear = rows.linear
    batched_linear = rows.batched_linear
    mul_mat_id = rows.mul_mat_id

    rms_norm = norms.rms_norm
    layer_norm = norms.layer_norm
    softmax = norms.softmax
    sinkhorn = norms.sinkhorn
    hadamard = norms.hadamard
    rope = norms.rope
    position_scale = norms.position_scale

    attention = attend.attention
    choose_positions = attend.choose_positions
    kv_store = attend.kv_store
    latent_attention = attend.latent_attention

    add = elementwise.add
    mul = elementwise.mul
    div = elementwise.div
    scale = elementwise.scale
    clamp = elementwise.clamp
    silu = elementwise.silu
    gelu = elementwise.gelu
    gelu_erf = elementwise.gelu_erf
    relu = elementwise.relu
    sigmoid = elementwise.sigmoid
    tanh = elementwise.tanh
    softplus = elementwise.softplus
    sin = elementwise.sin
    relu_squared = elementwise.relu_squared
    exp = elementwise.exp
    sqrt = elementwise.sqrt
    silu_mul = elementwise.silu_mul
    gelu_mul = elementwise.gelu_mul

    expert_ids = route.expert_ids
    quotient = route.quotient
    remainder = route.remainder
    expert_weights = route.expert_weights
    expert_sum = route.expert_sum

    top_k = arrange.top_k
    gather = arrange.gather
    sum = arrange.sum_
    reshape = arrange.reshape
    slice = arrange.slice_
    concat = arrange.concat

    conv1d = recurrent.conv1d
    ssm_scan = recurrent.ssm_scan
    linear_attention = recurrent.linear_attention


_LATER = [rows.tap]  # added to traced graphs, not called by architectures
OPERATIONS: dict[str, Operation[Any]] = {
    item.name: item for item in [*vars(Ops).values(), *_LATER] if isinstance(item, Operation)
}
"""Every operation by name."""

ELEMENTWISE = {name: item for name, item in OPERATIONS.items() if item.formula is not None}
"""Element-wise operations: on one operand, with up to two attributes, or on two."""
