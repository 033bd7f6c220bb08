"""``Llama``: a model in the form of llama-cpp-python's class."""

from __future__ import annotations

import fnmatch
import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeVar, Unpack

import numpy as np

import pumice
from pumice.compat.llama_cpp import results
from pumice.compat.llama_cpp.arguments import LlamaRAMCache
from pumice.compat.llama_cpp.chats import ChatRun
from pumice.compat.llama_cpp.completions import CompletionRun
from pumice.compat.llama_cpp.llama_cpp import HANDLES
from pumice.compat.llama_cpp.options import (
    RANDOM_SEED,
    ChatOptions,
    CompletionOptions,
    LlamaOptions,
    check_names,
    errors_as_llama,
    generate_options,
    load_options,
    without_unknown,
)
from pumice.compat.llama_cpp.sequence import SequenceMethods

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

_POOLINGS: dict[int, Literal["none", "mean", "cls", "last"]] = {0: "none", 1: "mean", 2: "cls", 3: "last"}
_Result = TypeVar("_Result", covariant=True)
_Part = TypeVar("_Part", covariant=True)
_handles = itertools.count(1)


class _Run(Protocol[_Result, _Part]):
    """A text or an answer to generate, with the tokens of its prompt and of what was generated."""

    tokens: list[int]

    def whole(self, name: str) -> _Result: ...

    def stream(self, name: str) -> Iterator[_Part]: ...


class Llama(SequenceMethods):
    """A loaded model, which answers with dictionaries by OpenAI's schema.

    Attributes:
        model_path: The file or name that it was loaded from.
        metadata: Metadata of the file as texts.
        context_params: ``n_ctx``, the context in tokens.
    """

    def __init__(self, model_path: str, **options: Unpack[LlamaOptions]) -> None:
        """Load a model.

        Args:
            model_path: Path of a GGUF file, or any name that ``pumice.load`` takes.
            options: llama-cpp-python's, with its defaults: ``n_gpu_layers=0`` computes on the CPU, -1 on a GPU.

        Raises:
            TypeError: An option looks like a misspelt one; other unknown ones are ignored with a warning.
            ValueError: The model cannot be loaded, or an option has a wrong value.
        """
        options = without_unknown(options)
        threads = options.get("n_threads")
        config = {"cpu": {"threads": threads}} if threads else {}
        try:
            self._pumice = pumice.load(model_path, config=config, **load_options(options))
        except pumice.PumiceError as error:
            name = str(model_path)
            if name.endswith(".gguf") and not name.startswith("hf.co/") and not Path(name).exists():
                raise ValueError(f"Model path does not exist: {model_path}") from error
            raise ValueError(f"Failed to load model from file: {model_path}: {error}") from error
        self.model_path = str(model_path)
        self.metadata = results.described(self._pumice.metadata)
        self.n_batch = options.get("n_batch", 512)
        self.last_n_tokens_size = options.get("last_n_tokens_size", 64)
        self.context_params = SimpleNamespace(n_ctx=self.n_ctx())
        self.chat_format = options.get("chat_format")
        self.verbose = options.get("verbose", True)
        self.cache: LlamaRAMCache | None = None
        seed = options.get("seed", RANDOM_SEED)
        self._seed = -1 if seed == RANDOM_SEED else seed
        self._pooling = options.get("pooling_type", -1)
        self._logits_all = options.get("logits_all", False)
        self.input_ids = np.zeros(self.n_ctx(), np.intc)
        self.scores = np.zeros((self.n_ctx() if self._logits_all else 1, self.n_vocab()), np.float32)
        self.n_tokens = 0
        self._handle = next(_handles)
        HANDLES[self._handle] = self
        self._finalizer = weakref.finalize(self, self._pumice.close)

    @property
    def model(self) -> int:
        """A handle of the model, for functions of ``llama_cpp``."""
        return self._handle

    @property
    def ctx(self) -> int:
        """A handle of the context, for functions of ``llama_cpp``."""
        return self._handle

    def close(self) -> None:
        """Free the model's memory."""
        self._finalizer()

    def set_cache(self, cache: LlamaRAMCache | None) -> None:
        """Do nothing but remember the cache: a model finds the prompts that it has read without one."""
        self.cache = cache

    @classmethod
    def from_pretrained(
        cls, repo_id: str, filename: str, additional_files: Sequence[str] = (), **options: Unpack[LlamaOptions]
    ) -> Self:
        """Load a file of a repository of the Hugging Face Hub, which is downloaded once.

        Args:
            repo_id: The repository, ``owner/name``.
            filename: Name of the file, or a pattern that one file matches, such as ``*Q8_0.gguf``.
            additional_files: Ignored: the parts of a split model are downloaded with the first.
            options: As those of ``Llama``.

        Raises:
            ValueError: No file matches, several do, or the Hub cannot be reached.
        """
        if not any(mark in filename for mark in "*?["):
            return cls(f"hf.co/{repo_id}/{filename}", **options)
        from pumice.hub.headers import repository_files

        try:
            names = repository_files(repo_id)
        except pumice.PumiceError as error:
            raise ValueError(str(error)) from error
        matching = fnmatch.filter(names, filename)
        if len(matching) != 1:
            found = "Multiple files" if matching else "No file"
            raise ValueError(f"{found} found in {repo_id} that match {filename}: {matching or names}")
        return cls(f"hf.co/{repo_id}/{matching[0]}", **options)

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        **options: Unpack[CompletionOptions],
    ) -> results.CreateCompletionResponse | Iterator[results.CreateCompletionResponse]:
        """Continue a text.

        Args:
            prompt: A text, or tokens that are used unchanged.
            suffix: Text after the generated one: the model fills in if it can, otherwise the text is appended.
            max_tokens: Maximum number of tokens; None, 0 or less: until the context is full.
            options: llama-cpp-python's, with its defaults; ``stream=True`` returns an iterator.

        Raises:
            TypeError: An option is unknown.
            ValueError: The prompt does not fit, or an option has a wrong value.
        """
        check_names("create_completion", options, CompletionOptions)
        with errors_as_llama():
            chosen = generate_options(options, self.last_n_tokens_size, self._seed_of(options))
            limit = max_tokens if max_tokens is not None and max_tokens > 0 else None
            run = CompletionRun.prepare(self._pumice, prompt, suffix, limit, options, chosen)
        return self._answer(run, options)

    __call__ = create_completion

    def create_chat_completion(
        self, messages: Sequence[Mapping[str, object]], **options: Unpack[ChatOptions]
    ) -> results.CreateChatCompletionResponse | Iterator[results.CreateChatCompletionStreamResponse]:
        """Return the answer to a chat.

        Args:
            messages: Messages with ``role`` and ``content``.
            options: llama-cpp-python's, with its defaults; ``stream=True`` returns an iterator.

        Raises:
            TypeError: An option is unknown.
            ValueError: The messages do not fit, or an option has a wrong value.
        """
        check_names("create_chat_completion", options, ChatOptions)
        with errors_as_llama():
            sampled: ChatOptions = {"temperature": 0.2, **options}
            chosen = generate_options(sampled, self.last_n_tokens_size, self._seed_of(options))
            run = ChatRun.prepare(self._pumice, messages, options, chosen)
        return self._answer(run, options)

    def create_chat_completion_openai_v1(
        self, messages: Sequence[Mapping[str, object]], **options: Unpack[ChatOptions]
    ) -> ChatCompletion | Iterator[ChatCompletionChunk]:
        """Like ``create_chat_completion``, with objects of the package ``openai``."""
        from openai.types.chat import ChatCompletion, ChatCompletionChunk

        result = self.create_chat_completion(messages, **options)
        if isinstance(result, Iterator):
            return (ChatCompletionChunk.model_validate(chunk) for chunk in result)
        return ChatCompletion.model_validate(result)

    def create_embedding(self, input: str | Sequence[str], model: str | None = None) -> results.CreateEmbeddingResponse:
        """Return the embeddings of texts, which have their own length."""
        texts = [input] if isinstance(input, str) else list(input)
        vectors, n_tokens = self._embed(texts, normalize=False, truncate=True)
        data: list[results.Embedding] = [
            {"object": "embedding", "embedding": vector, "index": index} for index, vector in enumerate(vectors)
        ]
        usage: results.EmbeddingUsage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": usage}

    def embed(
        self, input: str | Sequence[str], normalize: bool = False, truncate: bool = True
    ) -> list[float] | list[list[float]] | list[list[float] | list[list[float]]]:
        """Return the embedding of a text, or those of several; without pooling lists of one for each token."""
        texts = [input] if isinstance(input, str) else list(input)
        vectors, _ = self._embed(texts, normalize, truncate)
        return vectors[0] if isinstance(input, str) else vectors

    def _embed(
        self, texts: Sequence[str], normalize: bool, truncate: bool
    ) -> tuple[list[list[float] | list[list[float]]], int]:
        """Return the embeddings of texts, and the number of their tokens."""
        pooling = _POOLINGS.get(self.pooling_type(), "none")
        with errors_as_llama():
            vectors = self._pumice.embed(texts, normalize=normalize, pooling=pooling, truncate=truncate)
            counts = [min(len(self._pumice.tokenizer.tokenize(text)), self.n_ctx()) for text in texts]
        self.reset()
        return [vector.tolist() for vector in vectors], sum(counts)

    def _seed_of(self, options: CompletionOptions | ChatOptions) -> int:
        seed = options.get("seed")
        return self._next_seed() if seed is None else seed

    def _answer(self, run: _Run[_Result, _Part], options: CompletionOptions | ChatOptions) -> _Result | Iterator[_Part]:
        """Return what a run gives, after which the sequence is that of the prompt and its text."""
        name = options.get("model") or self.model_path
        if options.get("stream"):
            return self._noting(run, name)
        with errors_as_llama():
            result = run.whole(name)
        self._note(run.tokens)
        return result

    def _noting(self, run: _Run[_Result, _Part], name: str) -> Iterator[_Part]:
        with errors_as_llama():
            yield from run.stream(name)
        self._note(run.tokens)

    def _note(self, tokens: Sequence[int]) -> None:
        self.reset()
        self._extend(tokens[: self.n_ctx()])
