"""What a model is, wherever it computes: its metadata, its tokens, and what its engine said of itself."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any, TypeVar

from pumice.chat.template import check_chosen
from pumice.config import Config
from pumice.engine import EngineClient
from pumice.engine.messages import Facts
from pumice.errors import TokenizerError
from pumice.gguf import GGUFFile
from pumice.grammar import GrammarChecker
from pumice.opening import is_lora
from pumice.registry import Registry
from pumice.sampler import parameters
from pumice.summary import Summary
from pumice.tokenizers import Tokenizer, from_metadata

T = TypeVar("T")


class Base(ABC):
    """``client`` speaks to the engine; ``facts`` says what that is. Raises RequestError for an unknown template."""

    def __init__(self, file: GGUFFile, config: Config, registry: Registry, client: EngineClient, facts: Facts) -> None:
        if config.chat_template:
            check_chosen(file.metadata, config.chat_template)
        self.config = config
        self.client = client
        self.facts = facts
        self._file = file
        self._load_tokenizer = TokenizerOf(file, registry)
        self._formats = registry.chat_formats
        self._samplers = registry.samplers
        self._checker = GrammarChecker()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the GGUF file."""
        return self._file.metadata

    @cached_property
    def summary(self) -> Summary:
        """The summary of the file's header: numbers of parameters and bytes, the type, metadata."""
        return Summary.of(self._file)

    @property
    def n_ctx(self) -> int:
        return self.facts.n_ctx

    @property
    def backends(self) -> list[str]:
        """Names of the backends that compute the model; the one with the most operations comes first."""
        return self.facts.backends

    @property
    def memory(self) -> dict[str, int]:
        """Allocated bytes by purpose: weights, kv_cache, activations."""
        return self.facts.memory

    @property
    def n_vocab(self) -> int:
        """Number of logits of a token."""
        return self.facts.n_vocab

    @cached_property
    def sampling(self) -> Mapping[str, Any]:
        """Default parameters of the sampler chain: as configured, else the samplers' own."""
        chain = [self._samplers[name] for name in self.config.samplers]
        return {**parameters.defaults(chain), **self.config.sampling}

    @cached_property
    def loras(self) -> list[str]:
        """Names of the LoRA adapters; the other adapters are control vectors."""
        return [name for name, options in self.config.adapters.items() if is_lora(options.file)]

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @property
    def error(self) -> Exception | None:
        """The error that ended the engine; None while it runs and after it was closed."""
        return None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises TokenizerError if the file describes no known one."""
        return self._load_tokenizer()

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of ``text``.

        ``add_special`` adds the tokens that begin and end a text; ``parse_special`` reads ``<|im_end|>`` and the
        like as one token.
        """
        return self.tokenizer.tokenize(text, add_special, parse_special)

    def check_fits(self, texts: Sequence[str]) -> None:
        """Raise PromptTooLongError for texts that the context cannot hold together, as ``Tokenizer.check_fits``."""
        self.tokenizer.check_fits(texts, self.n_ctx)

    def detokenize(self, ids: Sequence[int]) -> str:
        return self.tokenizer.detokenize(ids)

    @contextlib.contextmanager
    def _waiting(self, future: Future[T]) -> Iterator[T]:
        """The result of a future, which is cancelled where nobody waits any more."""
        try:
            yield future.result()
        finally:
            future.cancel()


class TokenizerOf:
    """The tokenizer of a file, made when first asked for."""

    def __init__(self, file: GGUFFile, registry: Registry) -> None:
        self._file = file
        self._registry = registry

    def __call__(self) -> Tokenizer:
        return self._made

    def or_none(self) -> Tokenizer | None:
        """A model without a known tokenizer still takes and gives token ids."""
        try:
            return self._made
        except TokenizerError:
            return None

    @cached_property
    def _made(self) -> Tokenizer:
        return from_metadata(self._file.metadata, self._registry.tokenizers, self._registry.pre_tokenizers)
