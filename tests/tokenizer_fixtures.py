"""The small vocabularies of tests/fixtures/tokenizers, made by tests/make_fixtures/make_tokenizers.py."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from pumice.tokenizers import Tokenizer, from_metadata

FOLDER = Path(__file__).parent / "fixtures" / "tokenizers"
NAMES = (
    "spm", "spm-phi3", "spm-no-prefix", "bpe", "bpe-gaps", "gemma4", "wpm", "wpm-cased", "unigram", "unigram-spaces",
    "rwkv", "plamo2", "hybriddna", "whitespace", "whitespace-lower",
)  # fmt: skip


@cache
def fixture(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def metadata(name: str, **changes: Any) -> dict[str, Any]:
    """The metadata of a vocabulary; ``changes`` are keys under ``tokenizer.ggml.`` (None: left out)."""
    changed = fixture(name)["metadata"] | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {key: value for key, value in changed.items() if value is not None}


@cache
def small(name: str) -> Tokenizer:
    return from_metadata(fixture(name)["metadata"])


def with_tokens(name: str, tokens: dict[str, int], **changes: Any) -> Tokenizer:
    """A vocabulary with more tokens (text: type)."""
    base = metadata(name)
    changes["tokens"] = base["tokenizer.ggml.tokens"] + list(tokens)
    changes["token_type"] = base["tokenizer.ggml.token_type"] + list(tokens.values())
    if "tokenizer.ggml.scores" in base:
        changes["scores"] = base["tokenizer.ggml.scores"] + [0.0] * len(tokens)
    return from_metadata(metadata(name, **changes))
