"""Write the trained model as GGUF, in F16 or Q8_0 (GGUF specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from torch import Tensor

from pumice.chat.builtin import BUILTIN

from .model import Block, Llama, ModelConfig
from .tokenizer import BOS_ID, EOS_ID, vocabulary

NAME = "Pumice demo"
DESCRIPTION = (
    "A small llama model that tells children's stories. Trained from scratch on stories written by the grammar in "
    "tools/demo_model; it knows nothing else."
)
TYPES = {
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}


def export(model: Llama, tokenizer: Tokenizer, path: Path, file_type: str) -> None:
    """Write a GGUF file. `file_type`, a key of TYPES, is the type of every matrix; norms stay F32."""
    tensor_type, llama_file_type = TYPES[file_type]
    writer = gguf.GGUFWriter(path, "llama")
    _write_general(writer, llama_file_type)
    _write_hyperparameters(writer, model.config)
    _write_tokenizer(writer, tokenizer)
    for name, tensor in _tensors(model):
        array: npt.NDArray[np.float32] = tensor.detach().float().cpu().numpy()
        if array.ndim == 1:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, tensor_type), raw_dtype=tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_general(writer: gguf.GGUFWriter, file_type: gguf.LlamaFileType) -> None:
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(NAME)
    writer.add_basename("pumice-demo")
    writer.add_author("The Pumice authors")
    writer.add_version("1")
    writer.add_description(DESCRIPTION)
    writer.add_license("Apache-2.0")
    writer.add_size_label("5M")
    writer.add_tags(["text-generation", "stories"])
    writer.add_languages(["en"])
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _write_hyperparameters(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    writer.add_vocab_size(config.n_vocab)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.n_ff)
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
    writer.add_chat_template(BUILTIN["plain"])  # the model is not trained to chat: it continues the text


def _tensors(model: Llama) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors with GGUF's names. There is no output.weight, since the embedding is shared."""
    yield "token_embd.weight", model.embedding.weight
    for i, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        yield f"blk.{i}.attn_norm.weight", block.attention_norm.weight
        yield f"blk.{i}.attn_q.weight", block.attention.q.weight
        yield f"blk.{i}.attn_k.weight", block.attention.k.weight
        yield f"blk.{i}.attn_v.weight", block.attention.v.weight
        yield f"blk.{i}.attn_output.weight", block.attention.output.weight
        yield f"blk.{i}.ffn_norm.weight", block.ffn_norm.weight
        yield f"blk.{i}.ffn_gate.weight", block.gate.weight
        yield f"blk.{i}.ffn_up.weight", block.up.weight
        yield f"blk.{i}.ffn_down.weight", block.down.weight
    yield "output_norm.weight", model.norm.weight
