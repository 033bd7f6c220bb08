"""Attention, over the cache of a layer, over the step alone, or over what another graph stored."""

from __future__ import annotations

from pumice.graph.operation import Result, need, operation
from pumice.graph.shape import N_TOKENS
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
    cache: KVState | bool = True,
) -> Result:
    """Append ``k [t, g, d]`` and ``v [t, g, e]`` to the cache, then attend with ``q [t, h, d]``: ``[t, h, e]``.

    A query sees its own position and earlier ones, the latest ``window`` of them if it is not 0, or those from the
    last multiple of ``chunk`` on. If it is not ``causal`` it sees every position of its sequence, with a ``window``
    those at most ``window // 2`` away. Query head ``i`` reads key head ``i // (h / g)`` (GQA, Ainslie et al. 2023,
    arXiv:2305.13245). With ``v`` None the values are the first ``v_dim`` values of the keys.

    A score is ``scale * q . k``, then ``softcap * tanh(score / softcap)`` if ``softcap`` is not 0. With ``distance``
    the key's position minus the query's, ``slopes[i] * distance`` is added (ALiBi, Press et al. 2021,
    arXiv:2108.12409), and of ``bias [h, 2 r + 1]`` value ``r + distance``, cut off at both ends (relative positions,
    Raffel et al. 2019, arXiv:1910.10683). ``sinks [h]`` adds one more logit to each softmax that attends to nothing.

    ``cache``: True, the layer's own; False, none: a sequence is all in one step; or one that another layer or graph
    fills, and then ``k`` and ``v`` are None.
    """
    if k is None or isinstance(cache, KVState):
        need(k is None and v is None and isinstance(cache, KVState), "attention takes keys, or a cache that has them")
        assert isinstance(cache, KVState)
        n_head_kv, k_dim, state = cache.n_head_kv, cache.k_dim, cache
        v_dim = cache.v_dim or v_dim
    else:
        n_head_kv, k_dim = int(k.shape[-2]), int(k.shape[-1])
        v_dim = v_dim if v is None else int(v.shape[-1])
        state = KVState("kv", n_head_kv, k_dim, v_dim if v is not None else 0, window or chunk)
    n_head = int(q.shape[-2])
    need(q.shape[-1] == k_dim, f"attention: queries {q} need heads of the keys' size, {k_dim}")
    need(n_head % n_head_kv == 0, f"attention: {n_head} query heads cannot share {n_head_kv} key heads")
    need(v is None or v.shape[-2] == n_head_kv, f"attention: values {v} need {n_head_kv} heads")
    need(sinks is None or sinks.shape == (n_head,), f"{sinks}: attention needs {n_head} sinks")
    need(len(slopes) in (0, n_head), f"attention: {len(slopes)} slopes for {n_head} heads")
    need(bias is None or (len(bias.shape) == 2 and bias.shape[0] == n_head), f"{bias}: attention needs {n_head} rows")
    need(not (state.is_memory and causal), "attention to what another graph stores is not causal: give causal=False")
    need(0 in (window, chunk), "attention: a window or a chunk, not both")
    return Result((q.shape[0], n_head, v_dim), state=None if cache is False else state)


@operation
def kv_store(k: Tensor, v: Tensor | None, name: str) -> Result:
    """Append ``k [t, g, d]`` and ``v [t, g, e]`` to the cache ``name``, for attention in another graph; gives nothing.

    That attention (``cache=g.memory(name)``) sees all positions of the sequence whose memory this is.
    """
    v_dim = 0 if v is None else int(v.shape[-1])
    state = KVState(name, int(k.shape[-2]), int(k.shape[-1]), v_dim, is_memory=True)
    return Result((N_TOKENS, 0), state=state)
