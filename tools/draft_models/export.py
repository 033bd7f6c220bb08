"""Write the target, its sister and the head as GGUF files in Q8_0."""

from __future__ import annotations

from pathlib import Path

import gguf
from tokenizers import Tokenizer
from torch import Tensor

from tools.demo_model.model import Block, Llama, ModelConfig
from tools.demo_model.tokenizer import BOS_ID, EOS_ID, vocabulary

from .eagle import Eagle

Q8_0 = gguf.GGMLQuantizationType.Q8_0


def export_llama(model: Llama, tokenizer: Tokenizer, path: Path, name: str, split: int = 0) -> None:
    """Write a llama model; with ``split``, in parts of at most so many bytes."""
    writer = gguf.GGUFWriter(path, "llama", split_max_size=split)
    _write_keys(writer, model.config, name, model.config.n_layer, model.config.n_ff)
    _write_tokenizer(writer, tokenizer)
    _add(writer, "token_embd", model.embedding.weight)
    for i, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        for part, tensor in _block(block).items():
            _add(writer, f"blk.{i}.{part}", tensor)
    _add(writer, "output_norm", model.norm.weight)
    _finish(writer)


def export_eagle(head: Eagle, layers: list[int], tokenizer: Tokenizer, path: Path) -> None:
    """Write a head, which shares the target's embeddings and output matrix."""
    writer = gguf.GGUFWriter(path, "eagle3")
    _write_keys(writer, head.config, "Pumice draft test, EAGLE-3", 1, head.n_ff)
    writer.add_array("eagle3.target_layers", layers)
    writer.add_uint32("eagle3.target_hidden_size", head.config.n_embd)
    writer.add_bool("eagle3.norm_before_residual", False)
    _write_tokenizer(writer, tokenizer)
    tensors = {
        "fc": head.fc,
        "blk.0.attn_norm": head.token_norm,
        "blk.0.attn_norm_2": head.hidden_norm,
        "blk.0.attn_q": head.q,
        "blk.0.attn_k": head.k,
        "blk.0.attn_v": head.v,
        "blk.0.attn_output": head.output,
        "blk.0.ffn_norm": head.ffn_norm,
        "blk.0.ffn_gate": head.gate,
        "blk.0.ffn_up": head.up,
        "blk.0.ffn_down": head.down,
        "output_norm": head.norm,
    }
    for name, module in tensors.items():
        _add(writer, name, module.weight)
    _finish(writer)


def _block(block: Block) -> dict[str, Tensor]:
    return {
        "attn_norm": block.attention_norm.weight,
        "attn_q": block.attention.q.weight,
        "attn_k": block.attention.k.weight,
        "attn_v": block.attention.v.weight,
        "attn_output": block.attention.output.weight,
        "ffn_norm": block.ffn_norm.weight,
        "ffn_gate": block.gate.weight,
        "ffn_up": block.up.weight,
        "ffn_down": block.down.weight,
    }


def _add(writer: gguf.GGUFWriter, name: str, tensor: Tensor) -> None:
    """Add a matrix in Q8_0, or a vector in F32."""
    array = tensor.detach().float().cpu().numpy()
    if array.ndim == 1:
        writer.add_tensor(f"{name}.weight", array)
    else:
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(array, Q8_0), raw_dtype=Q8_0)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_keys(writer: gguf.GGUFWriter, config: ModelConfig, name: str, n_layer: int, n_ff: int) -> None:
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config.n_vocab)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_head_kv)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_layer_norm_rms_eps(config.norm_eps)


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    tokens, merges = vocabulary(tokenizer)
    control = (BOS_ID, EOS_ID)
    types = [gguf.TokenType.CONTROL if i in control else gguf.TokenType.NORMAL for i in range(len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
