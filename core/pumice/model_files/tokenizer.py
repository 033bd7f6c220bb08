"""The tokenizer of a model's file, created on first use."""

from __future__ import annotations

import contextlib
from functools import cached_property

from pumice.errors import TokenizerError
from pumice.gguf import GGUFFile
from pumice.registry import Registry
from pumice.tokenizers import Tokenizer, from_metadata

SHORT = "a"  # text


class LazyTokenizer:
    """Tokenizer of a file, created on first use."""

    def __init__(self, file: GGUFFile, registry: Registry) -> None:
        self._file = file
        self._registry = registry

    def __call__(self) -> Tokenizer:
        """Return the tokenizer. Raises TokenizerError if the file has no known one."""
        return self._made

    def or_none(self) -> Tokenizer | None:
        """Return the tokenizer, or None if the file has no known one: such a model works with token ids."""
        try:
            return self._made
        except TokenizerError:
            return None

    def begin(self) -> None:
        """Build what reads and writes short texts. Requests raise its errors."""
        with contextlib.suppress(Exception):
            self._made.tokenize(SHORT)

    def prepare(self) -> None:
        """Build what splits texts into tokens: half a second for large vocabularies. Requests raise TokenizerErrors.

        Raises:
            PluginError: A plugin's tokenizer or pre-tokenizer fails.
        """
        with contextlib.suppress(TokenizerError):
            self._made.prepare()

    @cached_property
    def _made(self) -> Tokenizer:
        return from_metadata(self._file.metadata, self._registry.tokenizers, self._registry.pre_tokenizers)
