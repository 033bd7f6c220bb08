"""The demo model in every quantization type, and how well each predicts stories it was not trained on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pumice
from gguf_files import write_gguf
from pumice.gguf import GGMLType, GGUFFile
from pumice.tokenizers import Tokenizer
from quantizers import quantize

TYPES = [
    *("F16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0"),
    *("Q4_K", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "MXFP4", "Q3_K", "Q2_K"),
]


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|> {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_demo_model(
    path: Path, type: GGMLType, source: Path | None = None, n_layer: int | None = None, template: str = ""
) -> Path:
    """The demo model, or the model ``source``, with all its matrices in another type, and its first layers alone."""
    with GGUFFile.open(source or pumice.demo_model_path()) as file:
        metadata = {key: value for key, value in file.metadata.items() if key != "general.file_type"}
        metadata |= {"tokenizer.chat_template": template} if template else {}
        names = list(file.tensors)
        if n_layer is not None:
            left_out = tuple(f"blk.{layer}." for layer in range(n_layer, metadata["llama.block_count"]))
            names = [name for name in names if not name.startswith(left_out)]
            metadata["llama.block_count"] = n_layer
        tensors = {name: file.tensors[name].dequantize() for name in names}
        types = {name: type for name, numbers in tensors.items() if numbers.ndim == 2}
        data = {name: quantize(numbers, type) if name in types else numbers for name, numbers in tensors.items()}
        return write_gguf(path, metadata, data, types)


def documents(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of whole stories, with their beginning and end."""
    assert tokenizer.eos is not None
    return [[*tokenizer.tokenize(text), tokenizer.eos] for text in texts]


def perplexity(path: Path, texts: Sequence[str], **options: Any) -> float:
    """exp of the mean of -log p(token), over all tokens but the first of each text. ``options`` are those of load."""
    with pumice.load(path, kv_type="f32", n_parallel=256, **options) as model:  # n_parallel: logits a step
        losses = [nats(model.logits(ids), ids) for ids in documents(model.tokenizer, texts)]
    return float(np.exp(np.concatenate(losses).mean()))


def nats(logits: np.ndarray, ids: Sequence[int]) -> np.ndarray:
    """-log p of ``ids[1:]`` with ``logits [len(ids), n_vocab]``; float64."""
    scores = logits[:-1].astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(scores)), ids[1:]]
