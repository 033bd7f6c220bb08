"""Tiny embedding models and rerankers; ``fixtures/tiny_embeddings.npz`` has what llama.cpp gives for them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.engine.messages import Encode
from tiny_models import ATTENTION, DIMS, ENDS, FUSED_ATTENTION, IDS, LLAMA, SWIGLU, TIED, TinyModel, tiny
from tiny_t5 import GATED, t5

TEXTS = [IDS, IDS[:7], [5], IDS[3:20]]
NONE, MEAN, CLS, LAST, RANK = range(5)  # GGUF's pooling_type

QKV = "attn_q+ attn_k+ attn_v+ attn_output+"
POST_NORMS = "attn_output_norm+ layer_output_norm+"
MLP = "ffn_up+ ffn_down+"
BERT_ENDS = "token_embd token_types=2,n token_embd_norm+"
CLASSIFIER = "cls=n,n+ cls.output.weight=3,n cls.output.bias=3"
LABELS = {"classifier__output_labels": ["a", "b", "c"]}


Layer = str | list[str]


def bert(architecture: str, layer: Layer, ends: str = BERT_ENDS, pooling: int = MEAN, **keys: Any) -> TinyModel:
    """Every head has keys of its own."""
    dims = dict(keys.pop("dims", {}))
    dims |= {"g": dims.get("h", DIMS["h"])}
    keys = {"attention__causal": False, "pooling_type": pooling, "/tokenizer__ggml__token_type_count": 2} | keys
    return tiny(architecture, layer, ends, dims=dims, layer_norm=True, **keys)


def encoder(architecture: str, layer: Layer, ends: str = TIED, pooling: int = MEAN, **keys: Any) -> TinyModel:
    return tiny(architecture, layer, ends, **{"attention__causal": False, "pooling_type": pooling} | keys)


MODERN = "ffn_norm ffn_up=2*f,n ffn_down"
MODERN_ENDS = f"{TIED} token_embd_norm"
EXPERTS = "ffn_gate_inp ffn_up_exps ffn_down_exps"
GEMMA = f"{LLAMA} attn_q_norm attn_k_norm post_attention_norm post_ffw_norm"


def wavtokenizer(width: int = 20) -> TinyModel:
    """Codes of audio to frames of ``width`` values."""
    norm = "{0}.weight=n,1 {0}.bias=n,1"
    matrix = "{0}.weight=n,n,{1} {0}.bias=n,1"
    conv = " ".join(f"{norm.format('{0}norm' + step)} {matrix.format('{0}conv' + step, 3)}" for step in ("1", "2"))
    norm = norm.format("{0}attn_norm")
    each = " ".join(matrix.format("{0}attn_" + x, 1) for x in ("q", "k", "v", "output"))
    parts = [conv, conv, f"{norm} {each}", conv, conv, norm]
    first = " ".join(part.format(f"posnet.{i}.") for i, part in enumerate(parts))
    next_ = (
        "{0}dw.weight=n,1,7 {0}dw.bias=n,1 {0}norm.weight=n {0}norm.bias=n {0}pw1.weight=f,n {0}pw1.bias=f "
        "{0}pw2.weight=n,f {0}pw2.bias=n {0}gamma.weight=n"
    )
    second = " ".join(next_.format(f"convnext.{i}.") for i in range(2))
    ends = (
        f"token_embd=V,24 conv1d.weight=n,24,7 conv1d.bias=n,1 {first} token_embd_norm+ {second} output_norm+ "
        f"output={width},n output.bias={width}"
    )
    keys = {
        "embedding_length": width,
        "features_length": 24,
        "posnet__embedding_length": 64,
        "posnet__block_count": 6,
        "convnext__embedding_length": 64,
        "convnext__block_count": 2,
        "attention__group_norm_epsilon": 1e-6,
        "attention__group_norm_groups": 8,
        "attention__causal": False,
        "pooling_type": NONE,
    }
    return tiny("wavtokenizer-dec", "", ends, n_layer=6, layer_norm=True, **keys)


MODELS = {
    "bert": bert("bert", f"{QKV} {POST_NORMS} {MLP}", f"{BERT_ENDS} position_embd"),
    "bert-plain": bert(
        "bert", f"attn_qkv=3*h*d,n+ attn_output {POST_NORMS} ffn_up ffn_down",
        "token_embd token_embd_norm+ position_embd", CLS,
    ),
    "bert-tokens": bert("bert", f"{QKV} {POST_NORMS} {MLP}", f"{BERT_ENDS} position_embd", NONE),
    "bert-rank": bert("bert", f"{QKV} {POST_NORMS} {MLP}", f"{BERT_ENDS} position_embd {CLASSIFIER}", RANK, **LABELS),
    "nomic-bert": bert(
        "nomic-bert", f"attn_qkv=3*h*d,n attn_output {POST_NORMS} ffn_gate ffn_up ffn_down", rope__freq_base=1000.0,
    ),
    "nomic-bert-biases": bert("nomic-bert", f"{QKV} {POST_NORMS} ffn_gate {MLP}", pooling=LAST),
    "nomic-bert-moe": bert(
        "nomic-bert-moe", [f"{QKV} {POST_NORMS} {MLP}", f"{QKV} {POST_NORMS} {EXPERTS}", f"{QKV} {POST_NORMS} {MLP}"],
        moe_every_n_layers=2, expert_count=4, expert_used_count=2,
    ),
    "jina-bert-v2": bert("jina-bert-v2", f"{QKV} {POST_NORMS} ffn_gate ffn_up ffn_down+"),
    "jina-bert-v2-code": bert(
        "jina-bert-v2", f"{QKV} attn_q_norm=n+ attn_k_norm=n+ {POST_NORMS} attn_norm_2+ ffn_up=2*f,n ffn_down+",
        dims={"h": 8, "d": 8},
    ),
    "jina-bert-v2-rank": bert(
        "jina-bert-v2", f"{QKV} {POST_NORMS} {MLP}", f"{BERT_ENDS} cls=1,n+", RANK, dims={"h": 3, "d": 16, "n": 48},
    ),
    "jina-bert-v3": bert("jina-bert-v3", f"{QKV} {POST_NORMS} {MLP}"),
    "modern-bert": bert(
        "modern-bert",
        [f"attn_qkv=3*h*d,n attn_output {MODERN}", *[f"attn_norm attn_qkv=3*h*d,n attn_output {MODERN}"] * 3],
        MODERN_ENDS, attention__sliding_window=8, rope__freq_base=160000.0,
    ),
    "modern-bert-silu": bert(
        "modern-bert", f"attn_norm attn_qkv=3*h*d,n attn_output {MODERN}", MODERN_ENDS, CLS, hidden_activation="silu",
        attention__sliding_window=6, attention__sliding_window_pattern=[True, False], rope__freq_base_swa=500.0,
    ),
    "modern-bert-rank": bert(
        "modern-bert", f"attn_norm attn_qkv=3*h*d,n attn_output {MODERN}",
        f"{MODERN_ENDS} cls=n,n cls.norm.weight=n cls.output.weight=1,n cls.output.bias=1", RANK,
    ),
    "neo-bert": encoder(
        "neo-bert", f"{FUSED_ATTENTION} ffn_norm ffn_up=2*f,n ffn_down", "token_embd enc.output_norm.weight=n", CLS,
    ),
    "neo-bert-rank": encoder(
        "neo-bert", f"{FUSED_ATTENTION} ffn_norm ffn_up=2*f,n ffn_down",
        f"token_embd enc.output_norm.weight=n {CLASSIFIER}", RANK, **LABELS,
    ),
    "eurobert": encoder("eurobert", LLAMA), "llama-embed": encoder("llama-embed", LLAMA, ENDS),
    "gemma-embedding": encoder(
        "gemma-embedding", GEMMA, n_layer=7, attention__sliding_window=8, attention__causal=None,
    ),
    "t5encoder": t5("t5encoder", "token_embd enc.output_norm.weight=n", pooling_type=MEAN),
    "t5encoder-gated": t5("t5encoder", "token_embd enc.output_norm.weight=n", GATED, every_bias=True, pooling_type=CLS),
    "llama": tiny("llama", LLAMA, pooling_type=LAST),
    "qwen2-both-ways": tiny("qwen2", f"{ATTENTION} {SWIGLU}", attention__causal=False, pooling_type=MEAN),
    "qwen3-rank": tiny(
        "qwen3", f"{LLAMA} attn_q_norm attn_k_norm", f"{ENDS} cls.output.weight=2,n", pooling_type=RANK,
        classifier__output_labels=["yes", "no"],
    ),
    "wavtokenizer-dec": wavtokenizer(),
}  # fmt: skip


def encoded(model: Any, pooling: int) -> NDArray[np.float32]:
    """Return llama.cpp's results for ``TEXTS``, one per row."""
    if pooling == RANK:
        embedder = model._embedder
        return np.array(model.engine.client.ask(Encode, TEXTS, embedder._pooling_of_scores, scores=True).result(60))
    if pooling == NONE:
        return np.concatenate(model.embed(TEXTS, normalize=False))
    found: NDArray[np.float32] = model.embed(TEXTS, normalize=False)
    return found
