"""Tiny encoder-decoders; ``fixtures/tiny_t5.npz`` has llama.cpp's logits after the encoder has read ``PROMPT``."""

from typing import Any

from tiny_models import DIMS, IDS, TinyModel, tiny

PROMPT = IDS
DECODED = [0, *IDS[4:17]]  # from the token that begins
START, BUCKETS = 0, 8

ATTENTION = "attn_norm attn_q attn_k=h*d,n attn_v=h*d,n attn_o=n,h*d"
CROSS = "cross_attn_norm cross_attn_q=h*d,n cross_attn_k=h*d,n cross_attn_v=h*d,n cross_attn_o=n,h*d"
MLP = "ffn_norm ffn_up ffn_down"
GATED = "ffn_norm ffn_gate ffn_up ffn_down"
ENDS = "token_embd enc.output_norm.weight=n dec.output_norm.weight=n"


def t5(
    architecture: str = "t5",
    ends: str = ENDS,
    feed_forward: str = MLP,
    n_encoder: int = 2,
    n_decoder: int = 2,
    every_bias: bool = False,
    **keys: Any,
) -> TinyModel:
    """Relative positions have a table in the first layer of each stack, or in every layer."""
    keys = {"attention__relative_buckets_count": BUCKETS, "decoder_start_token_id": START} | keys
    dims = {"g": DIMS["h"]} | keys.pop("dims", {})
    bias = f"attn_rel_b={BUCKETS},h"

    def layers(names: str, n: int) -> list[str]:
        return [f"{names} {feed_forward}{f' {bias}' if every_bias or i == 0 else ''}" for i in range(n)]

    stacks = {"enc": layers(ATTENTION, n_encoder)}
    if architecture == "t5":
        stacks["dec"] = layers(f"{ATTENTION} {CROSS}", n_decoder)
    shapes = tiny(architecture, "", ends, dims=dims).shapes
    for stack, names in stacks.items():
        shapes |= {f"{stack}.{name}": shape for name, shape in tiny(architecture, names, "", dims=dims).shapes.items()}
    metadata = tiny(architecture, [""] * n_encoder, "", dims=dims, **keys).metadata
    return TinyModel(architecture, metadata, shapes)


MODELS = {
    "t5": t5(),
    "t5-gated": t5(ends=f"{ENDS} output", feed_forward=GATED),
    "t5-every-bias": t5(ends=f"{ENDS} output", every_bias=True, n_encoder=3, decoder_block_count=2),
    "t5-narrow-heads": t5(dims={"d": 8}, n_encoder=3, n_decoder=1, decoder_block_count=1),
}
