"""Make tests/fixtures/transformers_embeddings.npz: what transformers gives for models of tests/tiny_encoders.py.

    python tests/make_fixtures/transformers_embeddings.py          (needs torch and transformers)

Each model has the weights of the tiny GGUF file under transformers' names, and embeds the same texts. Where published
models take GELU by the error function, these take its approximation by a hyperbolic tangent, as llama.cpp does.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from tiny_encoders import CLS, LAST, MODELS, TEXTS  # noqa: E402
from tiny_models import DIMS, N_CTX, weights  # noqa: E402
from tiny_t5 import BUCKETS  # noqa: E402

OUT = TESTS / "fixtures" / "transformers_embeddings.npz"
Names = dict[str, str]
SIZES = {
    "vocab_size": DIMS["V"], "hidden_size": DIMS["n"], "intermediate_size": DIMS["f"], "num_attention_heads": DIMS["h"],
    "max_position_embeddings": N_CTX, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip
LLAMA = {**SIZES, "num_key_value_heads": DIMS["g"], "head_dim": DIMS["d"], "rms_norm_eps": 1e-5}
LLAMA_LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
LLAMA_ENDS = {"token_embd": "embed_tokens", "output_norm": "norm"}
T5_LAYER = {
    "attn_norm": "layer.0.layer_norm", "attn_q": "layer.0.SelfAttention.q", "attn_k": "layer.0.SelfAttention.k",
    "attn_v": "layer.0.SelfAttention.v", "attn_o": "layer.0.SelfAttention.o",
    "attn_rel_b": "layer.0.SelfAttention.relative_attention_bias", "ffn_norm": "layer.1.layer_norm",
    "ffn_gate": "layer.1.DenseReluDense.wi_0", "ffn_up": "layer.1.DenseReluDense.wi",
    "ffn_down": "layer.1.DenseReluDense.wo",
}  # fmt: skip
T5_ENDS = {"token_embd": "shared", "enc.output_norm": "encoder.final_layer_norm"}


def names(layer: str, of_layer: Names, ends: Names, start: str = "blk.") -> Callable[[str], str]:
    """transformers' name of a tensor, from those of layers, which are in the list ``layer``, and of all else."""

    def name_of(tensor: str) -> str:
        base, _, kind = tensor.rpartition(".")
        if not base.startswith(start):
            return f"{ends[base]}.{kind}"
        i, _, part = base.removeprefix(start).partition(".")
        return f"{layer}.{i}.{of_layer[part]}.{kind}"

    return name_of


def bert() -> tuple[Any, Callable[[str], str]]:
    config = transformers.BertConfig(**SIZES, num_hidden_layers=2, layer_norm_eps=1e-5, hidden_act="gelu_new")
    of_layer = {
        "attn_q": "attention.self.query",
        "attn_k": "attention.self.key",
        "attn_v": "attention.self.value",
        "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm",
        "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense",
        "layer_output_norm": "output.LayerNorm",
    }
    embeddings = {"token_embd": "word", "position_embd": "position", "token_types": "token_type"}
    ends = {name: f"embeddings.{part}_embeddings" for name, part in embeddings.items()}
    ends["token_embd_norm"] = "embeddings.LayerNorm"
    return transformers.BertModel(config, add_pooling_layer=False), names("encoder.layer", of_layer, ends)


def nomic_bert() -> tuple[Any, Callable[[str], str]]:
    rope = {"rope_theta": 1000.0, "rope_type": "default"}
    config = transformers.NomicBertConfig(**SIZES, num_hidden_layers=2, layer_norm_eps=1e-5, rope_parameters=rope)
    of_layer = LLAMA_LAYER | {"attn_output_norm": "post_attention_layernorm", "layer_output_norm": "post_mlp_layernorm"}
    ends = {"token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings"}
    ends["token_embd_norm"] = "embeddings.LayerNorm"
    return transformers.NomicBertModel(config, add_pooling_layer=False), names("layers", of_layer, ends)


def modern_bert() -> tuple[Any, Callable[[str], str]]:
    config = transformers.ModernBertConfig(
        **SIZES, cls_token_id=1, sep_token_id=1, num_hidden_layers=4, norm_eps=1e-5, local_attention=8,
        hidden_activation="gelu_pytorch_tanh",
    )  # fmt: skip
    of_layer = {
        "attn_norm": "attn_norm",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.Wo",
        "ffn_norm": "mlp_norm",
        "ffn_up": "mlp.Wi",
        "ffn_down": "mlp.Wo",
    }
    ends = {"token_embd": "embeddings.tok_embeddings", "token_embd_norm": "embeddings.norm"}
    return transformers.ModernBertModel(config), names("layers", of_layer, ends | {"output_norm": "final_norm"})


def eurobert() -> tuple[Any, Callable[[str], str]]:
    config = transformers.EuroBertConfig(**LLAMA, num_hidden_layers=2, mask_token_id=1)
    return transformers.EuroBertModel(config), names("layers", LLAMA_LAYER, LLAMA_ENDS)


def llama() -> tuple[Any, Callable[[str], str]]:
    config = transformers.LlamaConfig(**LLAMA, num_hidden_layers=2)
    return transformers.LlamaModel(config), names("layers", LLAMA_LAYER, LLAMA_ENDS)


def gemma_embedding() -> tuple[Any, Callable[[str], str]]:
    config = transformers.Gemma3TextConfig(
        **LLAMA, num_hidden_layers=7, sliding_window=8, query_pre_attn_scalar=DIMS["d"],
        use_bidirectional_attention=True,
        rope_parameters={
            kind: {"rope_theta": 10000.0, "rope_type": "default"} for kind in ("full_attention", "sliding_attention")
        },
    )  # fmt: skip
    norms = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm"}
    of_layer = LLAMA_LAYER | norms | {"post_ffw_norm": "post_feedforward_layernorm"}
    return transformers.Gemma3TextModel(config), names("layers", of_layer, LLAMA_ENDS)


def t5encoder(feed_forward: str = "relu") -> tuple[Any, Callable[[str], str]]:
    config = transformers.T5Config(
        vocab_size=DIMS["V"], d_model=DIMS["n"], num_layers=2, num_heads=DIMS["h"], d_kv=DIMS["d"], d_ff=DIMS["f"],
        relative_attention_num_buckets=BUCKETS, feed_forward_proj=feed_forward, layer_norm_epsilon=1e-5,
    )  # fmt: skip
    return transformers.T5EncoderModel(config), names("encoder.block", T5_LAYER, T5_ENDS, "enc.blk.")


MADE = {
    "bert": bert, "nomic-bert": nomic_bert, "modern-bert": modern_bert, "eurobert": eurobert,
    "gemma-embedding": gemma_embedding, "t5encoder": t5encoder, "llama": llama,
}  # fmt: skip


def main() -> None:
    torch.set_grad_enabled(False)
    found = {}
    for name, make in MADE.items():
        model, name_of = make()
        fill(model.eval(), name, name_of)
        found[name] = np.stack([embedding(name, model, tokens) for tokens in TEXTS])
        print(name)
    np.savez_compressed(OUT, **found)


def fill(model: Any, name: str, name_of: Callable[[str], str]) -> None:
    """The weights of the GGUF file: of norms in Gemma what is above one, and some matrices taken apart."""
    state = model.state_dict()
    left = set(state) - {"encoder.embed_tokens.weight"}
    for tensor, shape in MODELS[name].shapes.items():
        values = weights(tensor, shape)
        if name == "gemma-embedding" and "norm" in tensor:
            values = values - 1
        if tensor == "output.weight":
            continue  # hidden states come before it
        if "attn_qkv" in tensor and name == "nomic-bert":
            parts = {tensor.replace("qkv", each): part for each, part in zip("qkv", np.split(values, 3), strict=True)}
        else:
            parts = {tensor: values}
        for each, part in parts.items():
            if name == "llama" and ("attn_q." in each or "attn_k." in each):
                part = unpaired(part)
            state[name_of(each)].copy_(torch.from_numpy(np.ascontiguousarray(part)))
            left.discard(name_of(each))
    assert not left, f"{name}: nothing is in {left}"


def unpaired(rows: np.ndarray) -> np.ndarray:
    """Rows of a head whose neighbours rotate together in GGUF, as transformers has them: first halves, then second."""
    heads = rows.reshape(-1, DIMS["d"] // 2, 2, rows.shape[1])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def embedding(name: str, model: Any, tokens: list[int]) -> np.ndarray:
    hidden = model(torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens), dtype=torch.long))
    rows = hidden.last_hidden_state[0].numpy()
    return {CLS: rows[0], LAST: rows[-1]}.get(MODELS[name].metadata["pooling_type"], rows.mean(axis=0))


if __name__ == "__main__":
    main()
