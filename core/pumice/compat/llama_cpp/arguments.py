"""Objects that programs pass to ``Llama``: lists of functions, grammars, caches, drafts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Logits = NDArray[np.float32]


class LogitsProcessorList(list[Callable[[Ids, Logits], Logits]]):
    """Functions that change the logits of the next token, one after the other."""

    def __call__(self, input_ids: Ids, scores: Logits) -> Logits:
        """Return the logits after all functions."""
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class StoppingCriteriaList(list[Callable[[Ids, Logits], bool]]):
    """Functions that end a text, which each of them may."""

    def __call__(self, input_ids: Ids, logits: Logits) -> bool:
        """Return True if one of the functions does."""
        return any(bool(criteria(input_ids, logits)) for criteria in self)


class MinTokensLogitsProcessor:
    """A logits processor that forbids the end token before ``min_tokens`` tokens."""

    def __init__(self, min_tokens: int, token_eos: int) -> None:
        self.min_tokens = min_tokens
        self.token_eos = token_eos
        self.prompt_tokens: int | None = None

    def __call__(self, input_ids: Ids, scores: Logits) -> Logits:
        """Return the logits, without that of the end token at first."""
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -np.inf
        return scores


@dataclass(frozen=True)
class LlamaGrammar:
    """A grammar in GBNF, or a JSON schema; one of the class methods makes it."""

    grammar: str = ""
    schema: str = ""

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """Return a grammar written in GBNF."""
        return cls(grammar=grammar)

    @classmethod
    def from_file(cls, file: str | Path, verbose: bool = True) -> LlamaGrammar:
        """Return the grammar in a file. Raises OSError."""
        return cls(grammar=Path(file).read_text(encoding="utf-8"))

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """Return the grammar of a JSON schema."""
        return cls(schema=json_schema if isinstance(json_schema, str) else json.dumps(json_schema))

    @property
    def options(self) -> Mapping[str, str]:
        """Options of ``pumice.Model.generate``."""
        return {"json_schema": self.schema} if self.schema else {"grammar": self.grammar}


class LlamaRAMCache:
    """A cache of prompts; a model keeps those that it has read without one."""

    def __init__(self, capacity_bytes: int = 2 << 30) -> None:
        self.capacity_bytes = capacity_bytes


class LlamaDiskCache(LlamaRAMCache):
    """Like ``LlamaRAMCache``: for prompts on disk load ``pumice.load(cache_disk=...)``."""

    def __init__(self, cache_dir: str = ".cache/llama_cache", capacity_bytes: int = 2 << 30) -> None:
        super().__init__(capacity_bytes)
        self.cache_dir = cache_dir


@dataclass(frozen=True)
class LlamaPromptLookupDecoding:
    """A draft model that looks for the last tokens in the text: Pumice's proposer ``ngram``, with its own sizes."""

    max_ngram_size: int = 2
    num_pred_tokens: int = 10
