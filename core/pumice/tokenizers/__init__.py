"""Tokenizers, built from the metadata of a GGUF file alone."""

from collections.abc import Mapping
from typing import Any

from pumice.errors import TokenizerError
from pumice.guard import guarded
from pumice.lazy import resolve
from pumice.tokenizers.base import Tokenizer, title_of
from pumice.tokenizers.incremental import IncrementalDecoder
from pumice.tokenizers.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from pumice.tokenizers.vocabulary import value
from pumice.wording import documentation_page

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
"""Tokenizer class by the value of ``tokenizer.ggml.model``, imported on first use."""

_NONE = ("none", "no_vocab", "test")


def has_tokenizer(metadata: Mapping[str, Any]) -> bool:
    """Return True if a file describes a tokenizer of any kind."""
    model = value(metadata, "model", str)
    return model is not None and model not in _NONE


def is_built_in(metadata: Mapping[str, Any]) -> bool:
    """Return True if a file names a tokenizer and a pre-tokenizer of Pumice's own, and none of a plugin."""
    pre = value(metadata, "pre", str)
    return value(metadata, "model", str) in TOKENIZERS and (pre is None or pre in PRE_TOKENIZERS)


def from_metadata(
    metadata: Mapping[str, Any],
    tokenizers: Mapping[str, type[Tokenizer] | str] = TOKENIZERS,
    pre_tokenizers: Mapping[str, PreTokenizer] = PRE_TOKENIZERS,
) -> Tokenizer:
    """Return the tokenizer that a GGUF file describes.

    Args:
        metadata: The file's metadata; the keys ``tokenizer.*`` are read (GGUF specification, section "Tokenizer").
        tokenizers: Classes by the value of ``tokenizer.ggml.model``, built-in and from plugins.
        pre_tokenizers: Pre-tokenizers by the value of ``tokenizer.ggml.pre``, built-in and from plugins.

    Raises:
        TokenizerError: The file has no tokenizer, names an unknown model or pre-tokenizer, or has inconsistent
            metadata. The model can still be run on token ids.
    """
    model = value(metadata, "model", str)
    if model in tokenizers:
        cls: type[Tokenizer] = resolve(tokenizers[model])
        return guarded(cls.from_metadata, f"tokenizer {title_of(cls)}")(metadata, pre_tokenizers)
    if not has_tokenizer(metadata):
        raise TokenizerError("the file has no tokenizer (tokenizer.ggml.model); pass token ids instead of text")
    raise TokenizerError(
        f"tokenizer.ggml.model: {model!r} is not supported (known: {', '.join(sorted(tokenizers))}); "
        f"a plugin can add it: see {documentation_page('plugins.md')}"
    )
