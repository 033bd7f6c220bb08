"""Cases that transformers does not know: configurations and shapes of tensors, as these models' own files have them."""

from typing import Any, NamedTuple

from conversion_cases import COMMON

N_LAYER, N_VOCAB, WIDTH = COMMON["num_hidden_layers"], COMMON["vocab_size"], 32


class Written(NamedTuple):
    """A configuration, and the tensors of a checkpoint."""

    config: dict[str, Any]
    shapes: dict[str, list[int]]
    tokenizer: str = "bpe"
    options: tuple[str, ...] = ()


def written(
    model: str, own: dict[str, Any], outside: dict[str, list[int]], layer: dict[str, list[int]], **more: Any
) -> Written:
    """``layer``: shapes in each layer, ``{}`` in names, and of each of 4 experts, where there is a second ``{}``."""
    shapes = dict(outside)
    for name, shape in layer.items():
        for i in range(N_LAYER):
            for expert in range(4) if name.count("{}") > 1 else (0,):
                shapes[name.format(i, expert)] = shape
    config = {"architectures": [model], "rms_norm_eps": 1e-5, "rope_theta": 10000.0, **COMMON}
    return Written({**config, **own}, shapes, **more)


OUTSIDE = {
    "model.embed_tokens.weight": [N_VOCAB, WIDTH],
    "model.norm.weight": [WIDTH],
    "lm_head.weight": [N_VOCAB, WIDTH],
}
LAYER = "model.layers.{}."
NORMS = {f"{LAYER}{name}_layernorm.weight": [WIDTH] for name in ("input", "post_attention")}
ATTENTION = {
    f"{LAYER}self_attn.q_proj.weight": [WIDTH, WIDTH],
    f"{LAYER}self_attn.k_proj.weight": [WIDTH // 2, WIDTH],
    f"{LAYER}self_attn.v_proj.weight": [WIDTH // 2, WIDTH],
    f"{LAYER}self_attn.o_proj.weight": [WIDTH, WIDTH],
}


def gated(n_ff: int = 48, name: str = "mlp.") -> dict[str, list[int]]:
    """Gate, up and down."""
    return {
        f"{LAYER}{name}gate_proj.weight": [n_ff, WIDTH],
        f"{LAYER}{name}up_proj.weight": [n_ff, WIDTH],
        f"{LAYER}{name}down_proj.weight": [WIDTH, n_ff],
    }


LLAMA = NORMS | ATTENTION | gated()

BITNET = {f"{LAYER}self_attn.inner_attn_ln.weight": [WIDTH], f"{LAYER}mlp.ffn_layernorm.weight": [48]}

WRITTEN = {
    "bitnet": written("BitnetForCausalLM", {}, {name: OUTSIDE[name] for name in list(OUTSIDE)[:2]}, LLAMA | BITNET,
                      tokenizer="spm"),
    "minicpm": written("MiniCPMForCausalLM", {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16}, OUTSIDE,
                       LLAMA, tokenizer="spm"),
}  # fmt: skip
