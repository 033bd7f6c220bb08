"""Routing: the choice of a token's experts, and the mixture of their results (Shazeer et al. 2017, arXiv:1701.06538).

A gate turns a router's logits into probabilities: ``softmax``, ``sigmoid``, ``sqrt_softplus``, or
``softmax_of_chosen``, which is taken over the logits of the chosen experts alone.
"""

from __future__ import annotations

from pumice.graph.operation import Result, Tracer, composite, need, operation
from pumice.graph.ops.arrange import gather, slice_, sum_, top_k
from pumice.graph.ops.elementwise import clamp, sigmoid, softplus, sqrt
from pumice.graph.ops.norms import softmax
from pumice.graph.tensor import Tensor, Weight

GATES = ("softmax", "sigmoid", "softmax_of_chosen", "sqrt_softplus")
SMALLEST_WEIGHT_SUM = 2.0**-14  # smallest normal float16; keeps normalized weights finite
HUGE = 1e30  # larger than any probability


def _choose(
    g: Tracer,
    logits: Tensor,
    bias: Weight | None,
    *,
    n_used: int,
    gate: str,
    n_group: int = 1,
    n_group_used: int = 1,
) -> Tensor:
    if bias is None and n_group == 1:  # gates keep the order
        return top_k(g, logits, n_used)
    preference = _open(g, logits, gate)
    if bias is not None:
        preference = preference + bias
    if n_group > 1:
        preference = _keep_best_groups(g, preference, n_group, n_group_used)
    return top_k(g, preference, n_used)


def _open(g: Tracer, logits: Tensor, gate: str) -> Tensor:
    if gate == "sqrt_softplus":
        return sqrt(g, softplus(g, logits))
    functions = {"softmax": softmax, "sigmoid": sigmoid}
    return functions[gate](g, logits) if gate in functions else logits


def _keep_best_groups(g: Tracer, preference: Tensor, n_group: int, n_group_used: int) -> Tensor:
    """Exclude experts whose group is not among the best by the sum of its two best experts."""
    tokens, n_expert = preference.shape
    grouped = preference.reshape(tokens, n_group, int(n_expert) // n_group)
    scores = sum_(g, gather(g, grouped, top_k(g, grouped, 2)), axis=-1)
    best = gather(g, scores, top_k(g, scores, n_group_used))
    worst_kept = slice_(g, best, n_group_used - 1, n_group_used)
    penalty = clamp(g, (scores + worst_kept * -1.0) * HUGE, -HUGE, 0.0)  # 0 for groups that are kept
    return (grouped + penalty.reshape(tokens, n_group, 1)).reshape(tokens, n_expert)


@composite("expert_ids", _choose)
def expert_ids(
    logits: Tensor, bias: Weight | None, *, n_used: int, gate: str, n_group: int = 1, n_group_used: int = 1
) -> Result:
    """int32 ids ``[t, n_used]`` of the experts of each token, best first, from ``logits [t, n_expert]``.

    They are chosen by their probability plus ``bias [n_expert]`` (DeepSeek-V3, arXiv:2412.19437, section 2.1.2), from
    the ``n_group_used`` of ``n_group`` groups whose two best experts are the best together.
    """
    n_expert = int(logits.shape[-1])
    need(gate in GATES, f"expert_ids: gate {gate!r}, known are {', '.join(GATES)}")
    need(0 < n_used <= n_expert, f"expert_ids: cannot take {n_used} of {n_expert} experts")
    need(bias is None or bias.shape == (n_expert,), f"{bias}: expert_ids needs {n_expert} values")
    need(0 < n_group_used <= n_group and n_expert % n_group == 0, f"expert_ids: {n_group_used} of {n_group} groups")
    size = n_expert // n_group
    if n_group > 1:
        need(size > 1, f"expert_ids: cannot take 2 of {size} experts in a group")
        n_left = n_group_used * size
        need(n_used <= n_left, f"expert_ids: cannot take {n_used} of the {n_left} experts of {n_group_used} groups")
    return Result((logits.shape[0], n_used), "i32")


@operation
def quotient(x: Tensor, size: int) -> Result:
    """int32 ``[...]``: the quotient of each non-negative int32 ``x [...]`` and ``size``, such as an expert's group."""
    need(size > 0, f"quotient: divided by {size}")
    return Result(x.shape, "i32")


@operation
def remainder(x: Tensor, size: int) -> Result:
    """int32 ``[...]``: the remainder of each non-negative int32 ``x [...]`` divided by ``size``."""
    need(size > 0, f"remainder: divided by {size}")
    return Result(x.shape, "i32")


def _weigh(g: Tracer, logits: Tensor, ids: Tensor, *, gate: str, normalize: bool = False, scale: float = 1.0) -> Tensor:
    weights = gather(g, _open(g, logits, gate), ids)
    if gate == "softmax_of_chosen":
        weights = softmax(g, weights)
    if normalize:
        weights = weights / clamp(g, sum_(g, weights, axis=-1, keepdims=True), SMALLEST_WEIGHT_SUM, float("inf"))
    return weights if scale == 1 else weights * scale


@composite("expert_weights", _weigh)
def expert_weights(logits: Tensor, ids: Tensor, *, gate: str, normalize: bool = False, scale: float = 1.0) -> Result:
    """The weight of each chosen expert ``[t, n_used]``: its probability, normalized if requested, times ``scale``."""
    need(gate in GATES, f"expert_weights: gate {gate!r}, known are {', '.join(GATES)}")
    return Result(ids.shape)


@composite("expert_sum", lambda g, y, weights: sum_(g, y * weights.reshape(*weights.shape, 1), axis=-2))
def expert_sum(y: Tensor, weights: Tensor) -> Result:
    """The sum of the experts' results ``[t, n_used, n]`` weighted by ``weights [t, n_used]``: ``[t, n]``."""
    need(y.shape[:-1] == weights.shape, f"expert_sum: weights {weights} do not fit {y}")
    return Result((y.shape[0], y.shape[-1]))
