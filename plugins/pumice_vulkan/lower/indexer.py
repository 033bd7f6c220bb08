"""The rule for an indexer, which selects the positions that a token attends to (sparse attention)."""

from __future__ import annotations

from pumice.plugin.unstable import KVState, Limits, Node
from pumice_vulkan.kv_cache import can_hold
from pumice_vulkan.lower.attended import cache_of, store
from pumice_vulkan.lower.rule import Lowering, Rule

PART = 128  # pools per workgroup, as in shaders/index_scores.comp


def _choose_positions(lowering: Lowering, node: Node) -> None:
    """Store the step's keys, score all positions, and convert each token's scores to its mask."""
    q, weights, state = node.inputs["q"], node.inputs["weights"], node.state_of(KVState)
    store(lowering, node)
    layout, cache = cache_of(lowering, state)
    steps, mask = lowering.memory.layout, lowering.place(node.output)
    n_chosen, pool, n_local = (node.attrs[name] for name in ("n_chosen", "pool", "n_local"))
    scored = 1 if n_local else pool  # positions per score
    width = lowering.width(node.output)
    lowering.dispatch(
        f"index_scores.{lowering.limits.kv_type}",
        count=q,
        reads={"q": lowering.place(q), "weights": lowering.place(weights), "cache": cache},
        writes={"y": mask},
        push={
            "sequences": steps.sequences,
            "positions": steps.positions,
            "table": steps.tables[state.window],
            "table_width": steps.table_width,
            "block_size": lowering.limits.block_size,
            "n_head": int(q.shape[1]),
            "k_dim": state.k_dim,
            "k_row_words": layout.push["k_row_words"],
            "k_scale_words": layout.push["k_scale_words"],
            "width": width,
            "n_chosen": n_chosen * pool // scored,
            "pool": scored,
        },
        constants=[-(-state.k_dim // 8)],
        grid=(-(-lowering.limits.n_ctx // (scored * PART)), lowering.rows(q), 1),
    )
    lowering.dispatch(
        "choose",
        count=q,
        reads={},
        writes={"y": mask},
        push={"positions": steps.positions, "width": width, "n_chosen": n_chosen, "pool": pool, "n_local": n_local},
        grid=(lowering.rows(q), 1, 1),
    )


def _claims(node: Node, limits: Limits) -> bool:
    return can_hold(node.state_of(KVState), limits)


RULES = {"choose_positions": Rule(_choose_positions, _claims)}
