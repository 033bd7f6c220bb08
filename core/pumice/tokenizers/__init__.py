"""Tokenizers, made from the metadata of a GGUF file alone."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pumice.errors import TokenizerError
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.incremental import IncrementalDecoder
from pumice.tokenizers.vocabulary import value

__all__ = ["IncrementalDecoder", "Tokenizer", "from_metadata"]

# What a file names as tokenizer.ggml.model: the module and the class that are it, and what they call it.
_MODELS = {
    "llama": ("spm", "SPMTokenizer", "SentencePiece BPE"),
    "gpt2": ("bpe", "BPETokenizer", "byte-level BPE"),
    "gemma4": ("bpe", "BPETokenizer", "BPE of plain text"),
    "bert": ("wpm", "WPMTokenizer", "WordPiece"),
    "t5": ("unigram", "UnigramTokenizer", "SentencePiece Unigram"),
    "rwkv": ("rwkv", "RWKVTokenizer", "greedy trie"),
    "plamo2": ("plamo2", "PLaMo2Tokenizer", "PLaMo 2"),
    "hybriddna": ("bpe_variants", "HybridDNATokenizer", "BPE with DNA k-mers"),
    "whitespace": ("bpe_variants", "WhitespaceTokenizer", "BPE within words"),
}
_NONE = ("none", "no_vocab", "test")


def from_metadata(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file describes.

    Args:
        metadata: The file's metadata; the keys ``tokenizer.*`` are read (GGUF specification, section "Tokenizer").

    Raises:
        TokenizerError: No tokenizer, one of an unknown model or pre-tokenizer, or one that the metadata does not
            describe consistently. The file's model can still be run on token ids.
    """
    model = value(metadata, "model", str)
    if model is None or model in _NONE:
        raise TokenizerError("the file has no tokenizer (tokenizer.ggml.model): give the model token ids, not text")
    if model not in _MODELS:
        known = ", ".join(f"{name} ({what})" for name, (_, _, what) in _MODELS.items())
        raise TokenizerError(
            f"tokenizer.ggml.model: {model!r} is not supported (known: {known}); give it token ids, not text"
        )
    module, name, _ = _MODELS[model]
    # Imported on use: one file needs one of them, and only some need Hugging Face tokenizers.
    tokenizer: Tokenizer = getattr(import_module(f"pumice.tokenizers.{module}"), name)(metadata)
    return tokenizer
