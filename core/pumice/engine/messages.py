"""Commands for the engine and its events: typed plain data, which ``pumice.process.codec`` sends to other processes.

Commands go in one by one. Events come out as one list a step, so that many sequences cost one message. The constraints
of the types are checked where a message arrives from another process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from pumice.grammar import Budget, Grammar

#: stop: an end-of-generation token, a stop token or a stop string; length: max_tokens; context_full: no position
#: is left in the context; timeout: the request's time is over; cancelled: by the caller, or the model was closed.
FinishReason = Literal["stop", "length", "context_full", "timeout", "cancelled"]

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Width = Annotated[int, Meta(ge=0, le=2**24)]  # of a vector
Seconds = Annotated[float, Meta(ge=0.0, le=1e12)]
Name = Annotated[str, Meta(max_length=1000)]

Algorithm = Literal["confidence", "entropy", "margin", "origin", "random"]
"""What a masked position is sure of by: its token's probability, the entropy, the best two's distance, or chance."""


@dataclass(frozen=True)
class Request:
    """What to generate after ``prompt``.

    Attributes:
        prompt: token ids, at least one.
        max_tokens: most tokens to generate; None or -1: until the model ends, or the context is full.
        sampling: parameters of the sampler chain by name; those not named have the configured values.
        samplers: names of the chain's samplers, first to last; None: the configured ones. With them
            parameters of others are not looked at.
        stop: strings that end the text; they are left out.
        special: control tokens that are spelt out in the text.
        stop_tokens: tokens that end it and are left out.
        end_tokens: others that do; None: those of the model.
        n_ctx: positions that it may have; None: as many as the model.
        n: how many completions. The prompt is read once, and each has a seed higher by one than the one before.
        logprobs: so many of the likeliest tokens come with each, with log-probabilities; None: no log-probabilities.
        logprobs_sampled: those are of the candidates that the sampler chain left, not of the whole vocabulary.
        cache_salt: only requests with an equal one share what the cache holds of equal prefixes.
        context_shift: a full context drops the older half of what follows the first token, and goes on; otherwise
            the sequence finishes with ``context_full``.
        priority: those with a higher one come first.
        timeout: seconds after which the sequence ends, waiting or generating; None: any number.
        newline_timeout: seconds after its first token, after which it ends as soon as it has a newline.
        grammar: what the text has to look like; None: anything.
        budget: of reasoning; None: any number of tokens.
        adapters: how strong each adapter is, by its name, 0 for those not named; None: each as the configuration says.
        diffusion_steps: in which a model that fills masks (diffusion) does so; None: one a token.
        diffusion_algorithm: which positions it fills first; with ``origin`` each is filled at each step by chance.
        block_length: tokens that it fills before those after them; None: all are one block.
        cfg_scale: how far its logits go away from those without the prompt; 0: not at all.
        request_id: by which logs name it.
    """

    prompt: Sequence[int]
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    samplers: Sequence[str] | None = None
    stop: Sequence[str] = ()
    special: Collection[int] = ()
    stop_tokens: Sequence[int] = ()
    end_tokens: frozenset[int] | None = None
    context_shift: bool = False
    n_ctx: int | None = None
    n: int = 1
    logprobs: int | None = None
    logprobs_sampled: bool = False
    cache_salt: str = ""
    priority: int = 0
    timeout: float | None = None
    newline_timeout: float | None = None
    grammar: Grammar | None = None
    budget: Budget | None = None
    adapters: Mapping[str, float] | None = None
    diffusion_steps: int | None = None
    diffusion_algorithm: Algorithm = "confidence"
    block_length: int | None = None
    cfg_scale: float = 0.0
    request_id: str = ""


@dataclass
class Timings:
    """Seconds and tokens of one sequence. ``prompt_cached`` of the prompt's tokens were found in the cache."""

    prompt_tokens: Count = 0
    prompt_cached: Count = 0
    queue_seconds: Seconds = 0.0
    prompt_seconds: Seconds = 0.0
    generated_tokens: Count = 0
    generation_seconds: Seconds = 0.0

    @property
    def prompt_per_second(self) -> float:
        return (self.prompt_tokens - self.prompt_cached) / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def generation_per_second(self) -> float:
        # The first token comes out of the prompt's last step.
        return (self.generated_tokens - 1) / self.generation_seconds if self.generation_seconds else 0.0


class Logprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The natural logarithm of a token's probability, and ``top``: the likeliest tokens, in order, with theirs."""

    logprob: float
    top: Sequence[tuple[Token, float]]


@dataclass(frozen=True)
class Snapshot:
    """What the engine has in hand between two steps.

    Attributes:
        n_waiting, n_running: sequences without and with a place in the cache.
        n_slots, n_slots_free: of sequences computed at once.
        n_blocks, n_blocks_free: of the KV cache, for each attention window (0: none); a block that is kept because
            its contents may be wanted again is free.
        n_steps: computed since the model was loaded.
    """

    n_waiting: Count
    n_running: Count
    n_slots: Count
    n_slots_free: Count
    n_blocks: Mapping[Count, Count]
    n_blocks_free: Mapping[Count, Count]
    n_steps: Count


@dataclass(frozen=True)
class Facts:
    """What an engine runs, known once it is loaded.

    Attributes:
        n_ctx: positions of a sequence; ``n_ctx_train``: those that the model was trained for.
        n_vocab: entries of a row of logits.
        backends: names of those that compute it, the one with most operations first.
        memory: bytes held, by purpose: weights, kv_cache, activations.
        generates: whether it can; an encoder cannot. ``fills_masks``: by diffusion.
        n_embd: values of an embedding; 0: it gives none.
        n_labels: scores of a text; 0: it does not rank texts.
    """

    n_ctx: Count
    n_ctx_train: Count
    n_vocab: Width
    backends: list[Name]
    memory: dict[Name, Count]
    generates: bool = True
    fills_masks: bool = False
    n_embd: Width = 0
    n_labels: Width = 0


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of commands and events: the wire form is an array, the class's name and the fields."""


# --- commands


class Add(Message, frozen=True):
    """Generate ``request``; events carry the id of the completion, which the sender chooses and never uses again.

    There are ``request.n`` ids.
    """

    ids: Sequence[Id]
    request: Request


Pooling = Literal["none", "mean", "cls", "last"]
"""Which hidden states of a text become its embedding: all of them, their mean, the first, the last."""


class Encode(Message, frozen=True):
    """Answer with ``Encoded``: each of ``texts``, token ids, as one vector or, without pooling, as one a token.

    ``scores``: the scores of a text, not its embedding. ``adapter_scales``: how strong each adapter is; none: all as
    they were trained.
    """

    id: Id
    texts: Sequence[Sequence[int]]
    pooling: Pooling
    scores: bool = False
    adapter_scales: Sequence[float] = ()


class Score(Message, frozen=True):
    """Answer with ``Scored``: how likely the model finds each token of a text, and ``n_top`` others in its place.

    ``adapter_scales``: as for ``Encode``. ``cache_salt``: requests with an equal one find the text in the cache.
    """

    id: Id
    tokens: Sequence[int]
    n_top: int = 0
    adapter_scales: Sequence[float] = ()
    cache_salt: str = ""


class Cancel(Message, frozen=True):
    """End a request: a sequence at whatever token it is, others by an error; of one that has ended nothing happens."""

    id: Id


class Ask(Message, frozen=True):
    """Answer with a ``Snapshot``."""

    id: Id


class Close(Message, frozen=True):
    """Cancel everything and end."""


Command = Add | Encode | Score | Cancel | Ask | Close

# --- events


class Accepted(Message, frozen=True):
    """A request is right, and waits. Only an engine that cannot raise to who sent it says so: see ``EngineClient``."""

    id: Id


class Progress(Message, frozen=True):
    """So many tokens of the prompt are in the cache now. The first comes when its reading begins: ``n_cached``."""

    id: Id
    n_read: Count
    n_prompt: Count
    n_cached: Count  # of them the cache had before
    seconds: Seconds  # of reading


class Output(Message, frozen=True, gc=False):
    """Tokens of one step, and for each the text that became certain with it, and what was asked of its probability."""

    id: Id
    tokens: Sequence[Token]
    texts: Sequence[str]
    logprobs: Sequence[Logprobs] | None = None


class Finished(Message, frozen=True):
    """The last event of a sequence that went well; ``text`` was held back until now."""

    id: Id
    text: str
    reason: FinishReason
    timings: Timings


class Failed(Message, frozen=True):
    """The last event of a sequence that could not be computed."""

    id: Id
    error: Exception


class Answer(Message, frozen=True):
    """To ``Ask``."""

    id: Id
    snapshot: Snapshot


class Encoded(Message, frozen=True):
    """To ``Encode``: of each text float32 ``[n]``, or ``[n_tokens, n]`` without pooling."""

    id: Id
    values: Sequence[NDArray[np.float32]]


class Scored(Message, frozen=True):
    """To ``Score``: of each token after the first, which nothing predicts."""

    id: Id
    logprobs: Sequence[Logprobs]


Event = Accepted | Progress | Output | Finished | Failed | Answer | Encoded | Scored
