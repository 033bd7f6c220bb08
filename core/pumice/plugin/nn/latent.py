"""Multi-head latent attention (MLA): keys and values derive from one small cached vector per token."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GraphBuilder, ModelError, Tensor, Weight, fixed
from pumice.plugin.nn.blocks import Norm, OperationOptions, linear, width
from pumice.plugin.nn.rope import Rope


def latent_attention(
    g: GraphBuilder,
    x: Tensor,
    q: Tensor,
    blk: str,
    rank: int,
    v_dim: int,
    rope: Rope | int,
    *,
    norm: Norm,
    scale: float,
    norm_of_key: str = "",
    **options: Unpack[OperationOptions],
) -> Tensor:
    """Attention of queries ``q [t, n_head, k_dim]`` over latents of ``rank`` values: ``[t, n_head, v_dim]``.

    ``attn_kv_a_mqa`` makes of ``x`` the latent, which ``norm`` normalizes by ``attn_kv_a_norm``, and a key with
    position, which has a norm too if ``norm_of_key`` names one; that key and as many last values of a query are
    turned by ``rope``; or ``rope`` is how many they are, and nothing turns. Files have either ``attn_k_b`` and
    ``attn_v_b`` or, older ones, ``attn_kv_b``. With ``options`` of the operation ``attention`` every step attends to
    latents.
    """
    k_dim, n_rot = width(q), rope if isinstance(rope, int) else rope.n_rot
    if not 0 < n_rot <= k_dim:
        raise ModelError(f"{blk}attn_kv_a_mqa: {n_rot} of {k_dim} values of a key have a position")
    q_rope = g.slice(q, k_dim - n_rot, k_dim)
    q_nope = g.slice(q, 0, max(k_dim - n_rot, 1))
    compressed = linear(g, x, blk + "attn_kv_a_mqa", rank + n_rot)
    latent = norm(g, g.slice(compressed, 0, rank), blk + "attn_kv_a_norm")
    k_rope = g.slice(compressed, rank, rank + n_rot).reshape(x.shape[0], 1, n_rot)
    if norm_of_key:
        k_rope = norm(g, k_rope, blk + norm_of_key)
    if not isinstance(rope, int):
        q_rope, k_rope = rope(g, q_rope), rope(g, k_rope)
    k_b, v_b, kv_b = latent_weights(g, blk, int(q.shape[1]), rank, k_dim - n_rot, v_dim)
    if not options:
        return g.latent_attention(q_nope, q_rope, latent, k_rope, k_b, v_b, kv_b, scale=scale)
    queries = g.concat(g.batched_linear(q_nope, k_b), q_rope)
    keys = g.concat(latent.reshape(x.shape[0], 1, rank), k_rope)
    return g.batched_linear(g.attention(queries, keys, None, scale=scale, v_dim=rank, **options), v_b)


def latent_weights(
    g: GraphBuilder, blk: str, n_head: int, rank: int, nope: int, v_dim: int
) -> tuple[Weight, Weight, Weight]:
    """``k_b [n_head, rank, nope]``, ``v_b [n_head, v_dim, rank]`` and ``kv_b [n_head (nope + v_dim), rank]``.

    The file has either the first two or the last; the others are made of them. Where whole keys have positions
    (``nope`` 0), one value that is always 0 stands for the rest of a key.
    """
    name = f"{blk}attn_kv_b.weight"
    kv_b = g.find_weight(name, (n_head * (nope + v_dim), rank))
    k_b: Weight | None = None
    if kv_b is not None:
        if nope:
            parts = n_head, rank, nope
            k_b = g.derived(f"{name}, keys", parts, lambda a: _heads(a, n_head)[:, :nope].swapaxes(1, 2), kv_b)
        v_b = g.derived(f"{name}, values", (n_head, v_dim, rank), lambda a: _heads(a, n_head)[:, nope:], kv_b)
    else:
        if nope:
            k_b = g.weight(f"{blk}attn_k_b.weight", (n_head, rank, nope))
        v_b = g.weight(f"{blk}attn_v_b.weight", (n_head, v_dim, rank))
    if k_b is None:
        k_b = g.constant(f"{name}, no keys", np.zeros((n_head, rank, 1)))
        return k_b, v_b, _joined(g, f"{name}, no keys but values", k_b, v_b)
    return k_b, v_b, _joined(g, name, k_b, v_b) if kv_b is None else kv_b


def _joined(g: GraphBuilder, name: str, k_b: Weight, v_b: Weight) -> Weight:
    (n_head, rank, nope), v_dim = fixed(k_b.shape), int(v_b.shape[1])
    shape = n_head * (nope + v_dim), rank

    def joined(keys: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.concatenate([keys.swapaxes(1, 2), values], axis=1).reshape(shape)

    return g.derived(name, shape, joined, k_b, v_b)


def _heads(a: NDArray[np.float32], n_head: int) -> NDArray[np.float32]:
    return a.reshape(n_head, -1, a.shape[-1])
