"""Tokenizers, made from the metadata of a GGUF file alone."""

from collections.abc import Mapping
from typing import Any

from pumice.errors import TokenizerError
from pumice.guard import guarded
from pumice.handbook import page
from pumice.lazy import resolve
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.incremental import IncrementalDecoder
from pumice.tokenizers.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from pumice.tokenizers.vocabulary import value

__all__ = ["PRE_TOKENIZERS", "TOKENIZERS", "IncrementalDecoder", "PreTokenizer", "Tokenizer", "from_metadata"]

TOKENIZERS = {
    "llama": "pumice.tokenizers.spm:SPMTokenizer",  # SentencePiece BPE
    "gpt2": "pumice.tokenizers.bpe:BPETokenizer",  # byte-level BPE
    "gemma4": "pumice.tokenizers.bpe:BPETokenizer",  # BPE of plain text
    "bert": "pumice.tokenizers.wpm:WPMTokenizer",  # WordPiece
    "t5": "pumice.tokenizers.unigram:UnigramTokenizer",  # SentencePiece Unigram
    "rwkv": "pumice.tokenizers.rwkv:RWKVTokenizer",  # greedy trie
    "plamo2": "pumice.tokenizers.plamo2:PLaMo2Tokenizer",
    "hybriddna": "pumice.tokenizers.bpe_variants:HybridDNATokenizer",  # BPE with DNA k-mers
    "whitespace": "pumice.tokenizers.bpe_variants:WhitespaceTokenizer",  # BPE within words
}
"""The value of ``tokenizer.ggml.model`` -> its class, imported when used: one file needs one of them."""

_NONE = ("none", "no_vocab", "test")


def has_tokenizer(metadata: Mapping[str, Any]) -> bool:
    """Whether a file describes a tokenizer, of whatever kind."""
    model = value(metadata, "model", str)
    return model is not None and model not in _NONE


def from_metadata(
    metadata: Mapping[str, Any],
    tokenizers: Mapping[str, type[Tokenizer] | str] = TOKENIZERS,
    pre_tokenizers: Mapping[str, PreTokenizer] = PRE_TOKENIZERS,
) -> Tokenizer:
    """The tokenizer that a GGUF file describes.

    Args:
        metadata: The file's metadata; the keys ``tokenizer.*`` are read (GGUF specification, section "Tokenizer").
        tokenizers: Classes by the value of ``tokenizer.ggml.model``: those that come with Pumice, and plugins' ones.
        pre_tokenizers: Likewise, by the value of ``tokenizer.ggml.pre``.

    Raises:
        TokenizerError: No tokenizer, one of an unknown model or pre-tokenizer, or one that the metadata does not
            describe consistently. The file's model can still be run on token ids.
    """
    model = value(metadata, "model", str)
    if model in tokenizers:
        cls: type[Tokenizer] = resolve(tokenizers[model])
        return guarded(cls.from_metadata, f"tokenizer {cls.__module__}.{cls.__qualname__}")(metadata, pre_tokenizers)
    if not has_tokenizer(metadata):
        raise TokenizerError("the file has no tokenizer (tokenizer.ggml.model): its model takes token ids, not text")
    raise TokenizerError(
        f"tokenizer.ggml.model: {model!r} is not supported (known: {', '.join(sorted(tokenizers))}); "
        f"a plugin can add it: see {page('plugins.md')}"
    )
