"""Cohere's: attention and feed-forward side by side."""

from functools import partial

from tiny_models import ATTENTION, SMALL, TIED, tiny

LAYER = f"{ATTENTION} ffn_gate ffn_up ffn_down"

command_r = partial(tiny, "command-r", ends=TIED, layer_norm=True, logit_scale=0.25)

cohere2 = partial(tiny, "cohere2", ends=TIED, layer_norm=True, attention__sliding_window=8)

MODELS = {
    "cohere2": cohere2(layer=f"{LAYER} ffn_gate.scale ffn_up.scale ffn_down.scale", n_layer=5, logit_scale=0.25),
    "cohere2-unscaled": cohere2(layer=LAYER, n_layer=2, logit_scale=0.0, attention__sliding_window_pattern=2),
    "command-r": command_r(layer=LAYER),
    "command-r-plus": command_r(layer=f"{LAYER} attn_q_norm=h,d attn_k_norm=g,d", n_layer=64, dims=SMALL),
}
