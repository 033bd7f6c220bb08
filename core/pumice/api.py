"""The Python interface: load a model, then generate, stream, or look at logits."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumice.architecture import Architecture, HParams
from pumice.backend import KernelTime
from pumice.config import Config, load_config
from pumice.demo import demo_model_path
from pumice.engine import Engine, Request, Runner
from pumice.engine import Sequence as EngineSequence
from pumice.engine.backends import backend_line
from pumice.engine.runner import Sizes, make_limits, trace
from pumice.engine.text import TextStream
from pumice.errors import ModelError, RequestError, TokenizerError
from pumice.gguf import GGUFFile
from pumice.hub import locate
from pumice.registry import Registry, get_registry, load_registry
from pumice.sampler import Chain, SamplerContext
from pumice.stream import Completion, Stream
from pumice.tokenizers import Tokenizer, from_metadata

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Prompt = str | Sequence[int]


def load(
    path: str | Path | None = None,
    *,
    backend: str | None = None,
    n_ctx: int | None = None,
    n_gpu_layers: int | None = None,
    kv_type: str | None = None,
    n_batch: int | None = None,
    n_parallel: int | None = None,
    config: Mapping[str, Any] | None = None,
    plugins: Sequence[object] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Model:
    """Load a model, or the demo model. What is not given comes from the configuration.

    Args:
        path: a GGUF file; as a string also the name of a model, ``hf.co/owner/repository:Q4_K_M`` for example, which
            is fetched unless it is here. See docs/models.md.
        backend: a backend's name, or "auto": the first available one.
        n_ctx: tokens of context, shared by the sequences generated at once; 0: as many as the model was trained for.
        n_gpu_layers: layers on a GPU backend; -1: all.
        kv_type: type of the key/value cache: "f32", "f16", "q8_0" or "q4_0".
        n_batch: most tokens computed in one step.
        n_parallel: most sequences in one step.
        config: further settings, keys as in a configuration file.
        plugins: modules, or other objects, with hooks: plugins for this load only, beside those that are installed.
            What they register replaces what an installed one registers under the same name.
        progress: called with steps done and steps in all while the model compiles.

    Raises PumiceError: HubError, GGUFError, ModelError, ConfigError, PluginError or BackendError.
    """
    given = {
        "backend": backend,
        "n_ctx": n_ctx,
        "n_gpu_layers": n_gpu_layers,
        "kv_type": kv_type,
        "n_batch": n_batch,
        "n_parallel": n_parallel,
    }
    arguments = {**(config or {}), **{key: value for key, value in given.items() if value is not None}}
    file, settings = _locate(path, arguments)
    return Model(file, settings, progress, plugins)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a GGUF file, which needs no weights. Raises HubError, GGUFError or TokenizerError."""
    registry = load_registry(load_config())
    with GGUFFile.open(locate(path).path) as file:
        return from_metadata(file.metadata, registry.tokenizers, registry.pre_tokenizers)


def describe_graph(path: str | Path, **arguments: Any) -> str:
    """The graph of a model as text: what runs where, and the memory plan. Takes the arguments of ``load``."""
    located, settings = _locate(path, arguments)
    with GGUFFile.open(located) as file:
        return _prepare(file, settings, get_registry(settings), None)[1].describe()


def _locate(path: str | Path | None, arguments: Mapping[str, Any]) -> tuple[Path, Config]:
    """The file that ``path`` names, and the configuration it is loaded with."""
    settings = load_config(arguments)
    if path is None:
        return demo_model_path(), settings
    located = locate(path, settings)
    return located.path, load_config(arguments, located.options) if located.options else settings


class Model:
    """A loaded model. Use as a context manager, or ``close`` it. Several threads may generate at once."""

    def __init__(
        self,
        path: str | Path,
        config: Config,
        progress: Callable[[int, int], None] | None = None,
        plugins: Sequence[object] = (),
    ) -> None:
        started = time.perf_counter()
        self.config = config
        self._registry = get_registry(config, plugins)
        self._lock = threading.RLock()
        self._closed = False
        self._file = GGUFFile.open(path)
        try:
            self.architecture, self._runner = _prepare(self._file, config, self._registry, progress)
            self._runner.compile()
        except BaseException:
            self._file.close()
            raise
        self._engine = Engine(self._runner)
        self.load_seconds = time.perf_counter() - started

    # --- what the model is

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the GGUF file."""
        return self._file.metadata

    @property
    def n_ctx(self) -> int:
        return self._engine.limits.n_ctx

    @property
    def backends(self) -> list[str]:
        """Names of the backends that compute it, the one with most operations first."""
        return self._runner.backends_used

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held, by purpose: weights, kv_cache, activations."""
        return self._runner.memory

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Raises TokenizerError if the file describes none that is known."""
        self._check_open()
        return from_metadata(self.metadata, self._registry.tokenizers, self._registry.pre_tokenizers)

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of ``text``.

        ``add_special`` adds the tokens that begin and end a text; ``parse_special`` reads ``<|im_end|>`` and the
        like as one token.
        """
        return self.tokenizer.tokenize(text, add_special, parse_special)

    def detokenize(self, ids: Sequence[int]) -> str:
        return self.tokenizer.detokenize(ids)

    # --- running it

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits ``[len(ids), n_vocab]`` after each token of one fresh sequence."""
        self._check_ids(ids)
        if not ids:
            raise RequestError("logits: no token ids given")
        with self._lock:
            self._check_open()
            return self._engine.logits(ids)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = 128,
        stop: str | Sequence[str] = (),
        context_shift: bool = False,
        **sampling: Any,
    ) -> Completion:
        """Complete ``prompt``: text, or token ids taken as they are.

        Args:
            max_tokens: most tokens to generate; None: until the model ends, or the context is full.
            stop: strings that end the generation; they are left out.
            context_shift: when the context is full, forget its older half and go on.
            sampling: parameters of the sampler chain: temperature, top_k, top_p, min_p, seed, repeat_penalty,
                ignore_eos, ...

        Raises RequestError for a prompt that does not fit or a wrong parameter.
        """
        with self.stream(prompt, max_tokens=max_tokens, stop=stop, context_shift=context_shift, **sampling) as stream:
            return stream.completion()

    def generate_many(
        self, prompts: Sequence[Prompt], *, stop: str | Sequence[str] = (), **options: Any
    ) -> list[Completion]:
        """Complete several prompts in one batch, each as ``generate`` would alone."""
        streams = [self.stream(prompt, stop=stop, **options) for prompt in prompts]
        try:
            return [stream.completion() for stream in streams]
        finally:
            for stream in streams:
                stream.close()

    def stream(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = 128,
        stop: str | Sequence[str] = (),
        context_shift: bool = False,
        **sampling: Any,
    ) -> Stream:
        """As ``generate``, piece by piece as it comes. Closing the stream, or leaving it, cancels the rest."""
        text = TextStream(self._tokenizer_or_none, [stop] if isinstance(stop, str) else stop)
        return Stream(self._add(prompt, max_tokens, context_shift, sampling), text, self._step, self._cancel)

    # --- measuring it

    def bench_prompt(self, n_tokens: int, depth: int = 0) -> float:
        """Seconds to read a prompt of ``n_tokens`` random tokens after ``depth`` others, which are not timed."""
        ids = self._random_tokens(depth + n_tokens)
        with self._lock:
            self._check_open()
            return self._engine.measure(ids, depth)

    def bench_generation(self, n_tokens: int, depth: int = 0) -> float:
        """Seconds to generate ``n_tokens`` after ``depth`` random ones, which are not timed.

        The most probable token is chosen, wherever the text might end. Without a depth a token is there to begin with.
        """
        ids = self._random_tokens(depth + n_tokens)[: max(depth, 1)]
        context = SamplerContext(n_vocab=self.n_vocab)
        chain = Chain.build(self._registry.samplers, ["greedy"], {"temperature": 0.0}, context)
        n_untimed = 1 if depth else 0  # the prompt's last step gives the first token
        with self._lock:
            self._check_open()
            sequence = self._engine.add(Request(ids, chain, n_untimed + n_tokens))
            while len(sequence.generated) < n_untimed:
                self._engine.step()
            started = time.perf_counter()
            while not sequence.finish_reason:
                self._engine.step()
            return time.perf_counter() - started

    def bench_profile(self) -> list[KernelTime]:
        """Times of the kernels of the last step, by name, the longest first; empty where no backend can tell."""
        with self._lock:
            self._check_open()
            return self._runner.profile()

    def _random_tokens(self, n: int) -> list[int]:
        import numpy as np

        if n > self.n_ctx:
            raise RequestError(f"{n} tokens do not fit the context of {self.n_ctx}: raise n_ctx")
        ids: list[int] = np.random.default_rng(0).integers(0, self.n_vocab, n).tolist()
        return ids

    # --- ending it

    def close(self) -> None:
        """Release memory and the file. Streams still open end as cancelled."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._runner.close()
                self._file.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for streams

    @property
    def n_vocab(self) -> int:
        """Entries of a row of logits."""
        return self._runner.n_vocab

    def _add(
        self,
        prompt: Prompt,
        max_tokens: int | None,
        context_shift: bool,
        sampling: Mapping[str, Any],
    ) -> EngineSequence:
        """Queue a request in the engine."""
        ids = self.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
        self._check_ids(ids)
        tokenizer = self._tokenizer_or_none
        params = {**self.config.sampling, **sampling}
        context = SamplerContext(n_vocab=self.n_vocab, tokenizer=tokenizer)
        request = Request(
            ids,
            Chain.build(self._registry.samplers, self.config.samplers, params, context),
            max_tokens if max_tokens is not None else sys.maxsize,
            tokenizer.eog if tokenizer else frozenset(),
            context_shift,
            n_keep=1 if tokenizer and ids[:1] == [tokenizer.bos] else 0,
        )
        with self._lock:
            self._check_open()
            return self._engine.add(request)

    def _step(self, sequence: EngineSequence) -> None:
        """Compute one batch, unless another thread has brought ``sequence`` forward meanwhile."""
        n_generated = len(sequence.generated)
        with self._lock:
            self._check_open()
            if len(sequence.generated) == n_generated and not sequence.finish_reason:
                self._engine.step()

    def _cancel(self, sequence: EngineSequence) -> None:
        with self._lock:
            self._engine.cancel(sequence)

    @cached_property
    def _tokenizer_or_none(self) -> Tokenizer | None:
        """A model without a known tokenizer still takes and gives token ids."""
        try:
            return self.tokenizer
        except TokenizerError:
            return None

    def _check_ids(self, ids: Sequence[int]) -> None:
        for token in ids:
            if not 0 <= token < self.n_vocab:
                raise RequestError(f"token id {token} is outside the vocabulary of {self.n_vocab}")

    def _check_open(self) -> None:
        if self._closed:
            raise RequestError("the model is closed")


def _prepare(
    file: GGUFFile, config: Config, registry: Registry, progress: Callable[[int, int], None] | None
) -> tuple[Architecture, Runner]:
    """Everything up to compiling."""
    try:
        architecture = registry.architectures.find(file.architecture)(HParams(file.metadata))
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None
    sizes = Sizes(_context_length(config, architecture), config.n_batch, config.n_parallel, config.kv_type)
    graph = trace(file, architecture, sizes.n_ctx)
    runner = Runner(graph, backend_line(registry, config), make_limits(graph, sizes), config.n_gpu_layers, progress)
    return architecture, runner


def _context_length(config: Config, architecture: Architecture) -> int:
    """What was asked for; the default is no longer than what the model was trained for."""
    trained = architecture.n_ctx_train
    return min(config.n_ctx, trained) if config.n_ctx and config.is_default("n_ctx") else config.n_ctx or trained
