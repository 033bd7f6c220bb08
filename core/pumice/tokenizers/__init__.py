"""Tokenizers, made from the metadata of a GGUF file alone."""

from collections.abc import Mapping
from typing import Any

from pumice.errors import TokenizerError
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.incremental import IncrementalDecoder
from pumice.tokenizers.vocabulary import value

__all__ = ["IncrementalDecoder", "Tokenizer", "from_metadata"]

# Tokenizer models of the format that have no implementation here.
_NOT_SUPPORTED = {
    "t5": "SentencePiece unigram",
    "rwkv": "RWKV's greedy trie",
    "plamo2": "PLaMo-2",
    "hybriddna": "byte-level BPE with DNA k-mers",
    "whitespace": "white-space BPE",
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
    # Imported on use: one file needs one of them, and Hugging Face tokenizers only for BPE.
    if model == "llama":
        from pumice.tokenizers.spm import SPMTokenizer

        return SPMTokenizer(metadata)
    if model in ("gpt2", "gemma4"):
        from pumice.tokenizers.bpe import BPETokenizer

        return BPETokenizer(metadata)
    if model == "bert":
        from pumice.tokenizers.wpm import WPMTokenizer

        return WPMTokenizer(metadata)
    if model is None or model in _NONE:
        raise TokenizerError("the file has no tokenizer (tokenizer.ggml.model): give the model token ids, not text")
    known = "known: llama (SentencePiece), gpt2 and gemma4 (byte-level BPE), bert (WordPiece)"
    what = f" ({_NOT_SUPPORTED[model]})" if model in _NOT_SUPPORTED else ""
    raise TokenizerError(
        f"tokenizer.ggml.model: {model!r}{what} is not supported ({known}); give it token ids, not text"
    )
