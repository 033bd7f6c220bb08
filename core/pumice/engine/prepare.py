"""From a request to generations: its arguments checked, sampler chains built, its prompt seen by the samplers."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from pumice.architecture import Masks
from pumice.engine.generation import Generation
from pumice.engine.messages import Algorithm, Request
from pumice.engine.text import TextStream
from pumice.errors import PromptTooLongError, RequestError
from pumice.grammar import Budget, BudgetedReasoning, Compiler, Constraint, Grammar
from pumice.sampler import Chain, Sampler, SamplerContext, parameters
from pumice.sampler.suppressed import Suppressed
from pumice.tokenizers import Tokenizer

MOST_DIFFUSION_STEPS = 2**16  # each reads the whole text; by default they are as many as its new tokens
OF_DIFFUSION = ("diffusion_steps", "diffusion_algorithm", "block_length", "cfg_scale")  # options of a request


@dataclass(frozen=True)
class Preparer:
    """Prepares requests for one model. Any thread may, while the engine computes.

    Attributes:
        masks: of a model that generates by diffusion.
        decoder_start: the first token of a decoder, where an encoder reads prompts.
        samplers: all known, by name; ``order``: the names of the chain; ``sampling``: parameters of every request.
        adapters: how strong each of the model's is, by name, in the order in which its graph takes their scales.
    """

    n_ctx: int
    n_vocab: int
    load_tokenizer: Callable[[], Tokenizer | None]
    samplers: Mapping[str, type[Sampler]]
    order: Sequence[str]
    sampling: Mapping[str, Any] = field(default_factory=dict)
    adapters: Mapping[str, float] = field(default_factory=dict)
    decoder_start: int | None = None
    masks: Masks | None = None  # of a model that generates by diffusion

    @cached_property
    def _compiler(self) -> Compiler:
        """Of grammars."""
        return Compiler(self.load_tokenizer, self.n_vocab)

    def __call__(self, ids: Sequence[int], request: Request) -> list[Generation]:
        """One generation for each id. Raises RequestError for a prompt that does not fit, and for wrong arguments."""
        check_arguments(request)
        n_ctx = min(self.n_ctx, request.n_ctx or self.n_ctx)
        check_ids(request.prompt, self.n_vocab)
        if len(request.prompt) == 0:
            raise RequestError("the prompt has no tokens: give some text")
        if len(request.prompt) > n_ctx:
            raise PromptTooLongError(len(request.prompt), n_ctx)
        check_diffusion(request, self.masks)
        first = self._generation(ids[0], request, n_ctx)
        seeds = range(first.chain.seed + 1, first.chain.seed + len(ids))
        others = [replace(request, sampling={**request.sampling, "seed": seed}) for seed in seeds]
        generations = [first, *map(self._generation, ids[1:], others, [n_ctx] * len(others))]
        for generation in generations[1:]:
            generation.after = first
        return generations

    def _generation(self, id: int, request: Request, n_ctx: int) -> Generation:
        tokenizer = self.load_tokenizer()
        context = SamplerContext(n_vocab=self.n_vocab, tokenizer=tokenizer)
        first: list[Sampler] = []
        if tokenizer and tokenizer.suppressed:
            first.append(Suppressed(tokenizer.suppressed, self.n_vocab))
        first += self._masks_of(request)
        order, sampling = self.order, {**self.sampling, **request.sampling}
        if request.samplers is not None:
            order = request.samplers
            every = [self.samplers[name] for name in self.samplers]
            parameters.check_known(
                request.sampling.keys() - parameters.SHARED, every, self.samplers, parameters.ARGUMENTS
            )
            sampling = parameters.of_chain(sampling, [self.samplers[name] for name in order if name in self.samplers])
        chain = Chain.build(self.samplers, order, sampling, context, first)
        for token in request.prompt:
            chain.accept(token)
        _ = chain.mask  # it is kept; a grammar whose beginning needs too much is refused here
        end_tokens = request.end_tokens
        if end_tokens is None:
            end_tokens = tokenizer.eog if tokenizer else frozenset()
        begins = tokenizer is not None and request.prompt[0] == tokenizer.bos
        text = TextStream(tokenizer, request.stop, frozenset(request.special))
        ends = end_tokens | set(request.stop_tokens)
        scales = adapter_scales(self.adapters, request.adapters)
        generation = Generation(id, request, chain, text, ends, n_ctx, n_keep=int(begins), adapter_scales=scales)
        if self.decoder_start is not None:
            generation.tokens, generation.n_keep, generation.is_encoded = [self.decoder_start], 1, True
        return generation

    def _masks_of(self, request: Request) -> list[Sampler]:
        """The sampler of what the text has to look like, and of how long it may reason."""
        n_prompt = len(request.prompt)
        constraint = Constraint(request.grammar, self._compiler, n_prompt) if request.grammar else None
        if request.budget:
            tokenizer = self.load_tokenizer()
            if tokenizer is None:
                raise RequestError("a budget of reasoning needs a tokenizer that is known, which this model lacks")
            check_ids(request.budget.closing, self.n_vocab)
            return [BudgetedReasoning(request.budget, tokenizer, self.n_vocab, n_prompt, constraint)]
        return [constraint] if constraint else []


def check_arguments(request: Request) -> None:
    """Raise RequestError, with its name, for an argument of a wrong type or out of its range."""
    for name, least in (("max_tokens", -1), ("n_ctx", 1), ("logprobs", 0)):
        if getattr(request, name) is not None:
            _check_integer(name, getattr(request, name), least)
    _check_integer("n", request.n, 1)
    _check_integer("priority", request.priority)
    for name in ("context_shift", "logprobs_sampled"):
        check_switch(name, getattr(request, name))
    if not isinstance(request.sampling, Mapping) or not _all(list(request.sampling), str):
        raise RequestError(f"sampling must be a mapping of names to values, not {_shown(request.sampling)}")
    if request.samplers is not None and (isinstance(request.samplers, str) or not _all(request.samplers, str)):
        raise RequestError(f"samplers must be a list of names, not {_shown(request.samplers)}")
    if isinstance(request.stop, str) or not _all(request.stop, str):
        raise RequestError(f"stop must be a string or a list of strings, not {_shown(request.stop)}")
    for name in ("stop_tokens", "special"):
        if not _all(getattr(request, name), int):
            raise RequestError(f"{name} must be a list of token ids, not {_shown(getattr(request, name))}")
    for name in ("cache_salt", "request_id"):
        check_text(name, getattr(request, name))
    _check_adapters(request.adapters)
    _check_diffusion_types(request)
    if request.grammar is not None and not isinstance(request.grammar, Grammar):
        raise RequestError(f"grammar must be a Grammar, not {_shown(request.grammar)}")
    if request.budget is not None and not isinstance(request.budget, Budget):
        raise RequestError(f"budget must be a Budget, not {_shown(request.budget)}")
    for name in ("timeout", "newline_timeout"):
        given = getattr(request, name)
        if given is not None and (isinstance(given, bool) or not isinstance(given, (int, float)) or not given >= 0):
            raise RequestError(f"{name} must be a number of seconds, at least 0, not {given!r}")


def _check_diffusion_types(request: Request) -> None:
    for name in ("diffusion_steps", "block_length"):
        if getattr(request, name) is not None:
            _check_integer(name, getattr(request, name), 1)
    algorithms, asked_for = typing.get_args(Algorithm), request.diffusion_algorithm
    if asked_for not in algorithms:
        raise RequestError(f"diffusion_algorithm must be one of {', '.join(algorithms)}, not {asked_for!r}")
    scale = request.cfg_scale
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not math.isfinite(scale):
        raise RequestError(f"cfg_scale must be a number, not {scale!r}")


def check_diffusion(request: Request, masks: Masks | None) -> None:
    """Raise RequestError for options of diffusion that are not this model's or too large, and for those it lacks."""
    if masks is None:
        for each in dataclasses.fields(Request):
            if each.name in OF_DIFFUSION and getattr(request, each.name) != each.default:
                raise RequestError(f"this model does not generate by diffusion: it has no use for {each.name}")
        return
    if (request.diffusion_steps or 0) > MOST_DIFFUSION_STEPS:
        raise RequestError(f"diffusion_steps must be at most {MOST_DIFFUSION_STEPS}, not {request.diffusion_steps}")
    lacking = {
        "a grammar": request.grammar is not None,
        "a budget of reasoning": request.budget is not None,
        "logprobs": request.logprobs is not None,
        "context_shift": request.context_shift,
    }
    for name, asked in lacking.items():
        if asked:
            raise RequestError(f"this model fills all of a text at once (diffusion): it cannot do {name}")


def adapter_scales(adapters: Mapping[str, float], asked: Mapping[str, float] | None) -> tuple[float, ...]:
    """How strong each of a model's ``adapters`` is: as ``asked``, or as the model has it.

    Raises RequestError for a name that is none's, or no number.
    """
    _check_adapters(asked)
    if asked is None:
        return tuple(adapters.values())
    for name in asked:
        if name not in adapters:
            known = ", ".join(adapters) or "none"
            raise RequestError(f"adapters: the model has no adapter {name!r}; it has: {known}")
    return tuple(float(asked.get(name, 0.0)) for name in adapters)


def _check_adapters(adapters: Any) -> None:
    if adapters is None:
        return
    if not isinstance(adapters, Mapping):
        raise RequestError(f"adapters must be a mapping of names to numbers, not {_shown(adapters)}")
    for name, scale in adapters.items():
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not math.isfinite(scale):
            raise RequestError(f"adapters: the scale of {name!r} must be a number, not {scale!r}")


def token_ids(ids: Any, what: str) -> list[int]:
    """``ids`` as a list. Raises RequestError for what is no sequence of integers; ``what`` it should have been."""
    if isinstance(ids, np.ndarray):
        ids = ids.tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, (str, bytes, bytearray)) or not _all(ids, int):
        raise RequestError(f"{what}, not {_shown(ids)}")
    return [int(token) for token in ids]


def check_ids(ids: Sequence[int], n_vocab: int) -> None:
    """Raise RequestError for a token that the model does not have."""
    for token in ids:
        if not 0 <= token < n_vocab:
            raise RequestError(f"token id {token} is outside the vocabulary of {n_vocab}")


def check_switch(name: str, value: Any) -> None:
    """Raise RequestError for what is no truth value."""
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, not {_shown(value)}")


def check_text(name: str, value: Any) -> None:
    """Raise RequestError for what is no string."""
    if not isinstance(value, str):
        raise RequestError(f"{name} must be a string, not {_shown(value)}")


def _check_integer(name: str, value: Any, least: int | None = None) -> None:
    if not _all([value], int) or (least is not None and value < least):
        raise RequestError(
            f"{name} must be an integer{f', at least {least}' if least is not None else ''}, not {value!r}"
        )


def _all(values: Any, kind: type) -> bool:
    """Whether it is a list of ``kind``; NumPy's integers are integers, truth values are not."""
    kinds = (int, np.integer) if kind is int else kind
    listed = isinstance(values, (Sequence, set, frozenset)) and not isinstance(values, (bytes, bytearray))
    return listed and all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
