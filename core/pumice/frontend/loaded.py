"""A loaded model without its requests: its parts, facts, lifetime, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NoReturn, Self

from pumice.config import Config
from pumice.engine.messages import Facts
from pumice.errors import ModelClosedError
from pumice.frontend.adapters import Adapters
from pumice.frontend.cache import PromptCache
from pumice.frontend.embedder import Embedder
from pumice.frontend.engine import ModelEngine
from pumice.frontend.media import Media
from pumice.frontend.requests import RequestMaker
from pumice.frontend.speech import Speech
from pumice.frontend.template import Template
from pumice.model_files.summary import Summary
from pumice.notebook import facts_table, show_count
from pumice.sampler import parameters
from pumice.tokenizers import Tokenizer
from pumice.wording import format_bytes


class LoadedModel:
    """The parts and facts of a loaded model. It is a context manager; otherwise ``close`` it.

    Attributes:
        engine: What computes: ``engine.snapshot()`` is its load, ``engine.error`` the reason of its end.
        metadata: Metadata of the GGUF file.
        media: Images, sounds and videos of prompts.
        template: The chat template.
        speech: Texts to sound, and sounds to text.
        cache: Prompts on disk.
        adapters: LoRA adapters and control vectors: add, scale, remove.
    """

    def __init__(self, engine: ModelEngine) -> None:
        """Use an engine.

        Raises:
            RequestError: ``config.chat_template`` names no template.
        """
        self.engine = engine
        self.metadata: Mapping[str, Any] = engine.file.metadata
        if self.config.chat_template:
            from pumice.chat.template import check_chosen

            check_chosen(self.metadata, self.config.chat_template)
        self.media = Media(engine)
        self._requests = RequestMaker(engine, self.media)
        self.template = Template(engine, self.media, self._requests)
        self.speech = Speech(engine, self.media, self._requests)
        self.cache = PromptCache(engine)
        self.adapters = Adapters(engine)
        self._embedder = Embedder(engine, self.media)

    @property
    def config(self) -> Config:
        """Merged settings."""
        return self.engine.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the model. Raises TokenizerError if the file has no known one."""
        return self.engine.tokenizer()

    @property
    def facts(self) -> Facts:
        """Facts about the model: sizes, devices, what it generates and takes."""
        return self.engine.facts

    @property
    def summary(self) -> Summary:
        """Summary of the file's header, with numbers of parameters and bytes, quantization type and metadata."""
        return self.engine.summary

    @cached_property
    def sampling(self) -> Mapping[str, Any]:
        """Default parameters of the sampler chain: those of the configuration, else of the samplers."""
        chain = [self.engine.registry.samplers.find(name) for name in self.config.samplers]
        return {**parameters.defaults(chain), **self.config.sampling}

    @property
    def n_ctx(self) -> int:
        """Context in tokens."""
        return self.facts.n_ctx

    @property
    def n_vocab(self) -> int:
        """Number of logits of a token."""
        return self.facts.n_vocab

    @property
    def backends(self) -> list[str]:
        """Names of the backends that compute the model, the one with the most operations first."""
        return self.facts.backends

    @property
    def memory(self) -> dict[str, int]:
        """Allocated bytes by purpose: weights, kv_cache, activations."""
        return self.facts.memory

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self.engine.closed

    def close(self) -> None:
        """Free the memory and close the file. Open streams end with the reason ``cancelled``."""
        self.engine.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a model cannot be pickled or copied, since it holds memory of devices; load "
            f"{str(self.engine.file.path)!r} in the other process, or share this one over HTTP with `pumice serve`"
        )

    def __enter__(self) -> Self:
        if self.closed:
            raise ModelClosedError("the model is closed")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __dir__(self) -> list[str]:
        """Return the public names, for completion."""
        return [name for name in super().__dir__() if not name.startswith("_")]

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"on {', '.join(self.backends)}, n_ctx {self.n_ctx}"
        return f"<pumice.{type(self).__name__} {str(self.engine.file.path)!r} {state}>"

    def _repr_html_(self) -> str:
        memory = ", ".join(f"{purpose} {format_bytes(n)}" for purpose, n in self.memory.items() if n)
        facts = {
            "file": self.engine.file.path,
            **self.summary.facts,
            "backends": ", ".join(self.backends),
            "context": show_count(self.n_ctx, "token"),
            "memory": memory,
            "state": "closed" if self.closed else "open",
        }
        return facts_table(f"pumice.{type(self).__name__}", facts)
