"""The operations a graph is composed of. ``Ops`` is the part of the builder that architectures call.

Unless said otherwise tensors are float32. Backends implement operations by name; the NumPy backend is their
executable definition.
"""

from __future__ import annotations

from typing import Any

from pumice.graph.operation import Operation
from pumice.graph.ops import arrange, attend, elementwise, norms, recurrent, route, rows


class Ops:
    """Each operation as a method: it checks its operands, names the one that does not fit, and adds one node."""

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
    relu = elementwise.relu
    sigmoid = elementwise.sigmoid
    tanh = elementwise.tanh
    softplus = elementwise.softplus
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


OPERATIONS: dict[str, Operation[Any]] = {each.name: each for each in vars(Ops).values() if isinstance(each, Operation)}
"""Every operation by name."""

ELEMENTWISE = {name: each for name, each in OPERATIONS.items() if each.formula is not None}
"""Those that work element by element: on one operand, with up to two attributes, or on two."""
