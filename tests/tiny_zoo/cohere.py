"""Cohere's: attention and feed-forward side by side."""

from functools import partial

from tiny_models import ATTENTION, SMALL, TIED, tiny

LAYER = f"{ATTENTION} ffn_gate ffn_up ffn_down"

command_r = partial(tiny, "command-r", ends=TIED, layer_norm=True, logit_scale=0.25)

MODELS = {
    "command-r": command_r(layer=LAYER),
    "command-r-plus": command_r(layer=f"{LAYER} attn_q_norm=h,d attn_k_norm=g,d", n_layer=64, dims=SMALL),
}
