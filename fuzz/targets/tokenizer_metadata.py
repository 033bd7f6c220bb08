"""Tokenizer metadata: an error, or a working tokenizer."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fuzz.draw import Draw
from pumice.errors import TokenizerError
from pumice.tokenizers import PRE_TOKENIZERS, TOKENIZERS, from_metadata
from tokenizer_fixtures import NAMES, fixture

MODULES = ("pumice.tokenizers.vocabulary", "pumice.tokenizers.special", "pumice.tokenizers.partition")
MAX_LEN = 300
TOKENS = (
    b"<unk>",
    b"<s>",
    b"</s>",
    b"<0x00>",
    b"<0x41>",
    b"<|end|>",
    b"<|call|>",
    b"<|return|>",
    b"<PRE>",
    b"\\x41",
    b"\xe2\x96\x81",
)

_PIECES = (
    "<unk>", "<s>", "</s>", "a", "b", "ab", "▁", "▁a", "<0x41>", "<0xZZ>", "<|end|>", "<|call|>", "<|return|>",
    "<|eot_id|>", "<|tool_response>", "<PRE>", "<SUF>", "<MID>", "[PAD]", "", "\\x41", "\\xg0", "\\", "Ġa", "<dna>",
    "</dna>", "<oov>", "\n", "ü", "\udc80", "\x00", "ACGTAC\ue000",
)  # fmt: skip
_IDS = (
    "bos",
    "eos",
    "unknown",
    "seperator",
    "padding",
    "cls",
    "mask",
    "eot",
    "eom",
    "fim_pre",
    "fim_suf",
    "prefix",
    "suffix",
)
_FLAGS = (
    "add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces",
    "normalizer.lowercase", "normalizer.strip_accents",
)  # fmt: skip
_OTHER = ("precompiled_charsmap", "suppress_tokens", "merges", "scores", "token_type", "tokens", "pre", "model")


def seeds() -> Iterable[bytes]:
    for number in range(len(NAMES) + len(TOKENIZERS) + 1):
        yield bytes([number]) + b"\1\2\3\4\5\6\7\x08\x09"
        yield bytes([number]) + bytes(range(60))


def check(data: bytes) -> None:
    draw = Draw(data)
    metadata = _metadata(draw)
    try:
        tokenizer = from_metadata(metadata)
        ids = tokenizer.tokenize("Hello a</s>b<|end|>\n\x41ü")
        tokenizer.detokenize(ids, special=True)
        tokenizer.detokenize(range(min(tokenizer.n_vocab, 64)), special=draw.flag())
    except TokenizerError as error:
        assert str(error).isprintable(), str(error)


def _metadata(draw: Draw) -> dict[str, Any]:
    """Return a mutated real vocabulary, or a small synthetic one."""
    number = draw.below(len(NAMES) + len(TOKENIZERS) + 1)
    if number < len(NAMES):
        metadata = dict(fixture(NAMES[number])["metadata"])
    else:
        pieces = list(dict.fromkeys(draw.choice(_PIECES) for _ in range(draw.below(24))))
        metadata = {
            "tokenizer.ggml.model": [*TOKENIZERS, "none"][number - len(NAMES)],
            "tokenizer.ggml.tokens": pieces,
            "tokenizer.ggml.token_type": [draw.below(8) for _ in pieces],
            "tokenizer.ggml.scores": [-float(draw.below(20)) for _ in pieces],
            "tokenizer.ggml.merges": [f"{draw.choice(_PIECES)} {draw.choice(_PIECES)}" for _ in range(draw.below(4))],
            "tokenizer.ggml.pre": draw.choice(("default", "llama-bpe", "kimi-k2", "whitespace", *PRE_TOKENIZERS)),
        }
    for _ in range(draw.below(4)):
        kind = draw.below(3)
        if kind == 0:
            metadata[f"tokenizer.ggml.{draw.choice(_IDS)}_token_id"] = draw.integer() if draw.flag() else draw.below(8)
        elif kind == 1:
            metadata[f"tokenizer.ggml.{draw.choice(_FLAGS)}"] = draw.choice((True, False, 1, "x"))
        else:
            metadata[f"tokenizer.ggml.{draw.choice(_OTHER)}"] = _value(draw)
    return metadata


def _value(draw: Draw) -> Any:
    kind = draw.below(4)
    if kind == 0:
        return draw.json(2)
    if kind == 1:
        return np.frombuffer(draw.bytes(24), np.uint8)
    if kind == 2:
        return [draw.choice(_PIECES) for _ in range(draw.below(8))]
    return [draw.integer() for _ in range(draw.below(8))]
