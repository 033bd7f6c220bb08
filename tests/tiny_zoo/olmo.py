"""OLMo and others whose norms follow the blocks."""

from functools import partial

from tiny_models import ENDS, SMALL, YARN, tiny

BLOCKS = "attn_q attn_k attn_v attn_output post_attention_norm ffn_gate ffn_up ffn_down post_ffw_norm"
WIDE_NORMS = f"{BLOCKS} attn_q_norm=h*d attn_k_norm=g*d"
HEAD_NORMS = f"{BLOCKS} attn_q_norm attn_k_norm"

NO_NORMS = "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down"

olmo = partial(tiny, "olmo", NO_NORMS, layer_norm=True)

MODELS = {
    "olmo": olmo(ends="token_embd output"),
    "olmo-clamp": olmo(ends="token_embd", attention__clamp_kqv=0.5),
    "olmo2": tiny("olmo2", WIDE_NORMS),
    "olmo3": tiny("olmo2", WIDE_NORMS, n_layer=5, attention__sliding_window=8, **YARN),
    "exaone4": tiny("exaone4", HEAD_NORMS, f"{ENDS} rope_freqs"),
    "exaone4-32b": tiny("exaone4", HEAD_NORMS, n_layer=64, dims=SMALL, attention__sliding_window=8),
}
