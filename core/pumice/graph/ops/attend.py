"""Attention over the cache of a layer, over the step alone, or over keys and values stored by another graph."""

from __future__ import annotations

from pumice.graph.operation import Result, Tracer, composite, need, operation
from pumice.graph.ops.arrange import concat, slice_
from pumice.graph.ops.rows import batched_linear, linear
from pumice.graph.shape import N_TOKENS, fixed, format_shape, mask_width
from pumice.graph.tensor import KVState, Tensor, Weight


@operation
def attention(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Weight | None = None,
    v_dim: int = 0,
    causal: bool = True,
    chunk: int = 0,
    slopes: tuple[float, ...] = (),
    bias: Weight | None = None,
    mask: Tensor | None = None,
    log_sum: bool = False,
    cache: KVState | bool = True,
) -> Result:
    """Append ``k [t, g, d]`` and ``v [t, g, e]`` to the cache, then attend with ``q [t, h, d]``: ``[t, h, e]``.

    A query sees its own position and earlier ones, the latest ``window`` of them if it is not 0, or those from the
    last multiple of ``chunk`` on. If it is not ``causal`` it sees every position of its sequence, with a ``window``
    those at most ``window // 2`` away, with a ``chunk`` those from the same multiple of it on up to the next. Query
    head ``i`` reads key head ``i // (h / g)`` (GQA, Ainslie et al. 2023, arXiv:2305.13245). With ``v`` None the values
    are the first ``v_dim`` values of the keys.

    A score is ``scale * q . k``, then ``softcap * tanh(score / softcap)`` if ``softcap`` is not 0. With ``distance``
    the key's position minus the query's, ``slopes[i] * |distance|`` is taken off (ALiBi, Press et al. 2021,
    arXiv:2108.12409), and value ``r + distance`` of ``bias [h, 2 r + 1]``, cut off at both ends, added (relative
    positions, Raffel et al. 2019, arXiv:1910.10683). ``sinks [h]`` adds one more logit to each softmax that attends to
    nothing.

    ``mask [t, n]``, of ``choose_positions``, is added too: row by row what each position of the query's sequence gets.

    With ``log_sum`` a head's result has one more value, ``[t, h, e + 1]``: the logarithm of the sum of its
    exponentials, by which results over other keys can be added to it.

    ``cache``: True, the layer's own; False, none: a sequence is all in one step; or one that another layer or graph
    fills, and then ``k`` and ``v`` may be None: there is nothing to append.
    """
    need(k is not None or (v is None and isinstance(cache, KVState)), "attention takes keys, or a cache that has them")
    reach = window or chunk
    if isinstance(cache, KVState):
        state, v_width = cache, 0 if v is None else v.shape[-1]
        fits = k is None or (*k.shape[1:], v_width) == (state.n_head_kv, state.k_dim, state.v_dim)
        need(fits, f"attention: keys {k} and values {v} do not fit the cache {state.name}")
    else:
        assert k is not None
        state = _state("kv", k, v, reach)
    n_head, n_head_kv, n_kept = int(q.shape[-2]), state.n_head_kv, state.window
    need(q.shape[-1] == state.k_dim, f"attention: queries {q} need heads of the keys' size, {state.k_dim}")
    need(not n_kept or 0 < reach <= n_kept, f"attention: {state.name} keeps only {n_kept} positions")
    need(n_head % n_head_kv == 0, f"attention: {n_head} query heads cannot share {n_head_kv} key heads")
    need(v is None or v.shape[-2] == n_head_kv, f"attention: values {v} need {n_head_kv} heads")
    need(sinks is None or sinks.shape == (n_head,), f"{sinks}: attention needs {n_head} sinks")
    need(len(slopes) in (0, n_head), f"attention: {len(slopes)} slopes for {n_head} heads")
    need(bias is None or (len(bias.shape) == 2 and bias.shape[0] == n_head), f"{bias}: attention needs {n_head} rows")
    need(not (state.is_memory and causal), "attention to what another graph stores is not causal: give causal=False")
    need(0 in (window, chunk), "attention: a window or a chunk, not both")
    return Result((q.shape[0], n_head, (state.v_dim or v_dim) + log_sum), state=None if cache is False else state)


@operation
def choose_positions(
    q: Tensor, k: Tensor, weights: Tensor, *, n_chosen: int, n_ctx: int, pool: int = 1, n_local: int = 0
) -> Result:
    """The positions that a token attends to, by an indexer (DeepSeek-AI 2025, arXiv:2512.02556): ``[t, n]``.

    Appends ``k [t, 1, d]`` to a cache of its own. A position's score is the sum over heads of ``weights [t, h]`` times
    ``max(q . k, 0)``, with ``q [t, h, d]``. The result is a mask for ``attention``: 0 for the ``n_chosen`` positions of
    the highest scores, those as high as the last of them included, and -1e30 for the others; behind a token's own
    position it means nothing. ``n`` is ``mask_width(n_ctx)``.

    With a ``pool`` above 1, ``n_chosen`` pools of that many positions are chosen, by the key and the score of their
    last ones; positions of a pool that has no end yet are chosen too. With ``n_local`` a pool's score is the highest of
    its positions', also of one that has no end yet, and the latest ``n_local`` pools are chosen first.
    """
    need(k.shape[1:] == (1, q.shape[-1]), f"choose_positions: keys {k} do not fit {q}")
    need(weights.shape == q.shape[:2], f"choose_positions: weights {weights} do not fit {q}")
    need(n_chosen > 0 and pool > 0, f"choose_positions: cannot choose {n_chosen} pools of {pool} positions")
    need(0 <= n_local <= n_chosen, f"choose_positions: of {n_chosen} pools {n_local} cannot be the latest")
    return Result((q.shape[0], mask_width(n_ctx)), state=KVState("index", 1, int(q.shape[-1]), 0))


@operation
def kv_store(k: Tensor, v: Tensor | None, name: str = "", window: int = 0) -> Result:
    """Append ``k [t, g, d]`` and ``v [t, g, e]`` to a cache, without a result.

    The cache ``name`` is for attention in another graph (``cache=g.memory(name)``), which attends to all positions of
    the sequence. Without a name it is the layer's own cache, for attention with this ``window``.
    """
    return Result((N_TOKENS, 0), state=_state(name or "kv", k, v, window, is_memory=bool(name)))


def _state(name: str, k: Tensor, v: Tensor | None, window: int, is_memory: bool = False) -> KVState:
    """Return the cache for such keys and values."""
    v_dim = 0 if v is None else int(v.shape[-1])
    return KVState(name, int(k.shape[-2]), int(k.shape[-1]), v_dim, window, is_memory=is_memory)


def _attend_to_latents(
    g: Tracer,
    q_nope: Tensor,
    q_rope: Tensor,
    latent: Tensor,
    k_rope: Tensor,
    k_b: Weight,
    v_b: Weight,
    kv_b: Weight,
    scale: float,
) -> Tensor:
    """Absorbed form: the matrices that would decompress keys and values are applied to queries and results instead."""
    queries = concat(g, batched_linear(g, q_nope, k_b), q_rope)
    y = attention(g, queries, _latent_keys(g, latent, k_rope), None, scale=scale, v_dim=int(latent.shape[-1]))
    return batched_linear(g, y, v_b)


def _attend_to_heads(
    g: Tracer,
    q_nope: Tensor,
    q_rope: Tensor,
    latent: Tensor,
    k_rope: Tensor,
    k_b: Weight,
    v_b: Weight,
    kv_b: Weight,
    scale: float,
) -> Tensor:
    """Expanded form: attend to the decompressed keys and values of the step alone; latents are cached."""
    (tokens, n_head), nope = q_nope.shape[:2], int(q_nope.shape[2])
    kv_store(g, _latent_keys(g, latent, k_rope), None)
    width = nope + int(v_b.shape[1])
    unpacked = linear(g, latent, kv_b).reshape(tokens, n_head, width)
    keys = concat(g, slice_(g, unpacked, 0, nope), k_rope)
    values = slice_(g, unpacked, nope, width)
    return attention(g, concat(g, q_nope, q_rope), keys, values, scale=scale, cache=False)


def _latent_keys(g: Tracer, latent: Tensor, k_rope: Tensor) -> Tensor:
    """Return the cached values of a token, ``[t, 1, r + n]``."""
    return concat(g, latent.reshape(latent.shape[0], 1, int(latent.shape[-1])), k_rope)


@composite("latent_attention", _attend_to_latents, prompt=_attend_to_heads)
def latent_attention(
    q_nope: Tensor,
    q_rope: Tensor,
    latent: Tensor,
    k_rope: Tensor,
    k_b: Weight,
    v_b: Weight,
    kv_b: Weight,
    scale: float,
) -> Result:
    """Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1): ``[t, h, e]``.

    Queries ``q_nope [t, h, d]`` without and ``q_rope [t, h, n]`` with position; of a token ``latent [t, r]``, of which
    keys and values are linear, and ``k_rope [t, 1, n]`` are cached. ``kv_b [h (d + e), r]`` makes keys and values of
    latents, head by head a key and a value. ``k_b [h, r, d]`` is its keys' part transposed and ``v_b [h, e, r]`` its
    values' part: a step with a past attends to latents with them, and one without makes keys and values.
    """
    n_head, nope = fixed(q_nope.shape[1:])
    rank, v_dim = int(latent.shape[-1]), int(v_b.shape[1])
    need(q_rope.shape[:2] == q_nope.shape[:2], f"latent_attention: {q_rope} must have the heads of {q_nope}")
    need(k_rope.shape == (latent.shape[0], 1, q_rope.shape[2]), f"latent_attention: keys {k_rope} do not fit {q_rope}")
    for weight, shape in (
        (k_b, (n_head, rank, nope)),
        (v_b, (n_head, v_dim, rank)),
        (kv_b, (n_head * (nope + v_dim), rank)),
    ):
        need(weight.shape == shape, f"latent_attention: {weight} must be {format_shape(shape)}")
    return Result((q_nope.shape[0], n_head, v_dim))
