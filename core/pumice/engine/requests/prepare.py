"""Turn a request into generations: check arguments, build sampler chains, and pass them the prompt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pumice.architecture import Masks, MediaRules
from pumice.embeddings import Embeddings
from pumice.engine.media.rows import MediaIds, MediaRows, place_spans
from pumice.engine.messages import (
    Add,
    Encode,
    Encoded,
    LayersRead,
    Logprobs,
    ReadLayers,
    Request,
    SavePrompt,
    Score,
    Scored,
    Terms,
)
from pumice.engine.requests.arguments import NO_PREDICTION, AdapterNames, check_ids, site_name
from pumice.engine.requests.generation import Generation, salt_of
from pumice.engine.requests.job import EncoderPrompt
from pumice.engine.requests.outputs import TextStream
from pumice.engine.requests.reading import LayerRows, ReadRequest, Rows, Scores, TextRows, wanted_by, with_event
from pumice.engine.requests.sounds import Alignment
from pumice.errors import PromptTooLongError, PumiceError, RequestError
from pumice.grammar import BudgetedReasoning, Constraint
from pumice.proposers import ALONE, COMPUTED, names_of
from pumice.sampler import Chain, Sampler, SamplerContext, parameters
from pumice.sampler.forbidden import ForbiddenTokens
from pumice.sampler.functions import Functions, LayerFunctions
from pumice.sampler.mask import Mask, without_tokens
from pumice.tokenizers import Tokenizer
from pumice.wording import unknown_name

if TYPE_CHECKING:
    from pumice.grammar import Compiler

MOST_DIFFUSION_STEPS = 2**16  # each reads the whole text; the default is the number of new tokens
NEEDS_DRAFT = "'draft' needs a draft model: load the model with its file as draft"
NEEDS_LAYER = "'mtp': this model has no layer that drafts (MTP), or was loaded without it, as speculate: off does"
VERIFIES_NONE = "this backend verifies no drafts; leave it out, or load the model on the CPU"
NEEDS_SOUND = "this model writes down speech: give it a sound, or use transcribe"
OF_DIFFUSION = (
    "diffusion_steps",
    "diffusion_algorithm",
    "block_length",
    "cfg_scale",
)  # options for diffusion models only

PlacedSpans = tuple[list[int], MediaRows]
"""A prompt with ids of media, and their rows."""


@dataclass(frozen=True)
class Preparer:
    """Prepares requests for one model. Thread-safe, and independent of the engine's thread.

    Attributes:
        masks: settings of a model that generates by diffusion.
        proposers: names of proposers that requests may choose.
        verifies: whether the backend's steps verify drafts.
        decoder_start: first token of a decoder whose prompt an encoder reads.
        samplers: registered samplers by name; ``order``: names of the chain; ``sampling``: default parameters.
        media_width: values of a row of media; 0 if the model takes none.
        media_rules: how the model reads media.
        n_batch: maximum positions of a step.
        embeds_media: media can be embedded.
        aligns: a decoder has heads whose attention follows a sound.
        sites: places in the graph whose rows functions see.
        adapters: the model's adapters by name.
    """

    n_ctx: int
    n_vocab: int
    load_tokenizer: Callable[[], Tokenizer | None]
    samplers: Mapping[str, type[Sampler]]
    order: Sequence[str]
    sampling: Mapping[str, Any] = field(default_factory=dict)
    adapters: AdapterNames = field(default_factory=AdapterNames)
    decoder_start: int | None = None
    masks: Masks | None = None  # of a model that generates by diffusion
    proposers: Collection[str] = ()
    verifies: bool = True
    media_width: int = 0
    media_rules: MediaRules = field(default_factory=MediaRules)
    n_batch: int = 1 << 31
    embeds_media: bool = False
    aligns: bool = False
    sites: Collection[str] = ()
    media_ids: MediaIds = field(default_factory=MediaIds)

    @cached_property
    def _compiler(self) -> Compiler:
        """The compiler of grammars."""
        from pumice.grammar import Compiler

        return Compiler(self.load_tokenizer, self.n_vocab)

    def __call__(self, command: Add | Encode | Score | ReadLayers) -> list[Generation] | ReadRequest[Any]:
        """Return the jobs of a command. Raises RequestError for one that does not fit the model."""
        if isinstance(command, Encode):
            return self.texts(command)
        if isinstance(command, Score):
            return self.scores(command)
        if isinstance(command, ReadLayers):
            return self.layer_rows(command)
        return self.generations(command.ids, command.request, command.client)

    def salt(self, command: SavePrompt) -> bytes:
        """Return the salt of the blocks of a prompt to save. Raises RequestError for unknown adapters."""
        return salt_of(command.cache_salt, self.adapters.scales(command.adapters))

    def generations(self, ids: Sequence[int], request: Request, client: str = "") -> list[Generation]:
        """Return one generation per id. Raises RequestError for a prompt that does not fit or an invalid argument."""
        n_ctx = min(self.n_ctx, request.n_ctx or self.n_ctx)
        check_ids(request.prompt, self.n_vocab)
        if len(request.prompt) == 0:
            raise RequestError("the prompt has no tokens; give some text")
        if len(request.prompt) > n_ctx:
            raise PromptTooLongError(len(request.prompt), n_ctx)
        check_diffusion(request, self.masks)
        if request.on_layer:
            request = replace(request, speculate="off")  # drafts would be rows that are computed twice
        check_proposers(request.speculate, self.proposers, self.verifies)
        media: PlacedSpans | None = None
        if request.media:
            media = self.place(request.prompt, request.media)
            if request.context_shift:
                raise RequestError("context_shift: prompts with images or sound cannot shift, since parts would remain")
        ends = self._ends(request)
        late = without_tokens(ends, self.n_vocab) if request.min_tokens and ends else None
        first = self._generation(ids[0], request, n_ctx, late, media)
        seeds = range(first.chain.seed + 1, first.chain.seed + len(ids))
        others = [replace(request, sampling={**request.sampling, "seed": seed}) for seed in seeds]
        generations = [
            first,
            *(self._generation(*pair, n_ctx, late, media) for pair in zip(ids[1:], others, strict=True)),
        ]
        for generation in generations[1:]:
            generation.after = first
        prediction, terms = self._predicted(request), Terms(request.priority, request.timeout, client)
        for generation in generations:
            generation.prediction, generation.terms = prediction, terms
        return generations

    def texts(self, command: Encode) -> ReadRequest[Rows]:
        """Return the readings of texts to embed or to rank. Raises RequestError for media that do not fit."""
        if command.aligned:
            return self.alignments(command)
        if any(command.media) and not self.embeds_media:
            raise RequestError("this model does not embed images or sound: it was loaded without a projector for them")
        media = command.media if any(command.media) else [()] * len(command.texts)
        if len(media) != len(command.texts):
            raise RequestError(f"media of {len(command.media)} texts, for {len(command.texts)}")
        request: ReadRequest[Rows] = with_event(command, lambda values: Encoded(command.id, values))
        for text, spans in zip(command.texts, media, strict=True):
            tokens, rows = self.place(text, spans) if spans else (text, None)
            TextRows(
                request,
                wanted_by(command.pooling, len(tokens)),
                tokens=tokens,
                adapters=self.adapters.scales(command.adapters),
                media=rows,
                pooling=command.pooling,
                scores=command.scores,
            )
        return request

    def alignments(self, command: Encode) -> ReadRequest[Rows]:
        """Return the readings of texts with their sounds. Raises RequestError for a model or sounds that do not fit."""
        if not self.aligns:
            raise RequestError("this model does not tell when a word is said: it has no heads that follow a sound")
        request: ReadRequest[Rows] = with_event(command, lambda values: Encoded(command.id, values))
        for text, spans in zip(command.texts, command.media, strict=True):
            prompt = self.encoder_prompt(text, spans)
            tokens = [token for token in self.place(text, spans)[0] if token >= 0]
            if not tokens or len(prompt.tokens) < command.aligned:
                raise RequestError(f"aligned: {len(tokens)} tokens and {len(prompt.tokens)} rows of sound are too few")
            Alignment(request, range(len(tokens)), tokens=tokens, encoder_prompt=prompt, n_rows=command.aligned)
        return request

    def scores(self, command: Score) -> ReadRequest[list[Logprobs]]:
        """Return the reading of a text to score. Raises RequestError for an encoder-decoder."""
        if self.decoder_start is not None:
            raise RequestError(NO_PREDICTION)
        request: ReadRequest[list[Logprobs]] = with_event(command, lambda values: Scored(command.id, values[0]))
        Scores(
            request,
            range(len(command.tokens) - 1),
            tokens=command.tokens,
            adapters=self.adapters.scales(command.adapters),
            cache_salt=command.cache_salt,
            shares=True,
            n_top=command.n_top,
        )
        return request

    def layer_rows(self, command: ReadLayers) -> ReadRequest[Rows]:
        """Return the readings of layers. Raises RequestError for a layer that the model does not have."""
        if self.decoder_start is not None:
            raise RequestError("hidden: a model with an encoder and a decoder has two sequences of layers; use embed")
        sites = [site_name(layer, self.sites, "hidden") for layer in command.layers]
        scales = self.adapters.scales(command.adapters)
        request: ReadRequest[Rows] = with_event(command, lambda values: LayersRead(command.id, values))
        for tokens in command.texts:
            LayerRows(request, range(len(tokens)), tokens=tokens, adapters=scales, sites=sites)
        return request

    def encoder_prompt(self, tokens: Sequence[int], spans: Sequence[Embeddings]) -> EncoderPrompt:
        """Return what an encoder reads of a prompt: its sound if it takes one, else all tokens.

        Raises RequestError for a prompt without the sound, or with one that does not fit.
        """
        if not spans and not self.media_width:
            return EncoderPrompt(tokens)
        if not spans:
            raise RequestError(NEEDS_SOUND)
        placed, rows = self.place(tokens, spans)
        return EncoderPrompt([token for token in placed if token < 0], rows)

    def place(self, tokens: Sequence[int], spans: Sequence[Embeddings]) -> PlacedSpans:
        """Return a prompt with ids of media, and their rows. Raises RequestError for media that do not fit."""
        return place_spans(tokens, spans, self.media_ids, self.media_width, self.media_rules, self.n_batch)

    def _ends(self, request: Request) -> frozenset[int]:
        """Return the tokens that end the text of a request."""
        end_tokens = request.end_tokens
        if end_tokens is None:
            tokenizer = self.load_tokenizer()
            end_tokens = tokenizer.eog if tokenizer else frozenset()
        return frozenset(end_tokens) | set(request.stop_tokens)

    def _generation(
        self, id: int, request: Request, n_ctx: int, late: Mask | None, media: PlacedSpans | None
    ) -> Generation:
        """Return a generation. ``late``: mask without the end tokens, if they are forbidden at first."""
        tokenizer = self.load_tokenizer()
        context = SamplerContext(n_vocab=self.n_vocab, tokenizer=tokenizer)
        first: list[Sampler] = []
        if tokenizer and tokenizer.suppressed:
            first.append(ForbiddenTokens(tokenizer.suppressed, without_tokens(tokenizer.suppressed, self.n_vocab)))
        tokens, rows = media or ([], None)
        spoken = [token for token in tokens if token >= 0] if media else request.prompt
        ends = self._ends(request)
        if late is not None:
            first.append(ForbiddenTokens(ends, late, request.min_tokens + len(spoken)))
        first += self._masks_of(request, len(spoken))
        functions = None
        if request.logits_processor or request.stopping_criteria:
            functions = Functions(request.logits_processor, request.stopping_criteria)
            first.append(functions)
        order, sampling = self.order, {**self.sampling, **request.sampling}
        if request.samplers is not None:
            order = request.samplers
            every = [self.samplers[name] for name in self.samplers]
            parameters.check_known(
                request.sampling.keys() - parameters.SHARED, every, self.samplers, parameters.ARGUMENTS
            )
            sampling = parameters.of_chain(sampling, [self.samplers[name] for name in order if name in self.samplers])
        chain = Chain.build(self.samplers, order, sampling, context, first)
        for token in spoken:
            chain.accept(token)
        _ = chain.mask  # cached; refuses a grammar whose first mask exceeds the limits
        begins = tokenizer is not None and request.prompt[0] == tokenizer.bos
        text = TextStream(tokenizer, request.stop, frozenset(request.special))
        scales = self.adapters.scales(request.adapters)
        generation = Generation(
            *(request, chain, text, ends, n_ctx),
            id=id,
            n_keep=int(begins),
            adapters=scales,
            media=rows,
            tokens=list(tokens),
            functions=functions,
            layers=self._layers(request),
        )
        if self.decoder_start is not None:
            self._decode(generation, self.decoder_start)
        return generation

    def _layers(self, request: Request) -> LayerFunctions | None:
        """Return the request's functions of layers. Raises RequestError for a layer that the model does not have."""
        if not request.on_layer:
            return None
        if self.decoder_start is not None:
            raise RequestError("on_layer: models with an encoder have no such layers")
        named = {site_name(layer, self.sites, "on_layer"): function for layer, function in request.on_layer.items()}
        return LayerFunctions(named)

    def _decode(self, generation: Generation, start: int) -> None:
        """Let the encoder read the prompt, or its sound; the decoder continues the tokens beside that, or ``start``."""
        request, media = generation.request, generation.media
        if media is None:
            generation.encoder_prompt, generation.tokens = self.encoder_prompt(request.prompt, ()), [start]
        else:
            ids = [token for token in generation.tokens if token < 0]
            generation.encoder_prompt = EncoderPrompt(ids, media)
            generation.tokens, generation.media = list(generation.spoken) or [start], None
        generation.n_keep = 1

    def _predicted(self, request: Request) -> list[int]:
        """Return the tokens of a request's prediction, as many as fit into the context."""
        tokenizer = self.load_tokenizer() if request.prediction and request.speculate != "off" else None
        if tokenizer is None or request.prediction is None:
            return []
        text = request.prediction[: tokenizer.longest * self.n_ctx]
        return tokenizer.tokenize_following(text)[: self.n_ctx] if text else []

    def _masks_of(self, request: Request, n_prompt: int) -> list[Sampler]:
        """Return the samplers of grammar and reasoning budget, which follow ``n_prompt`` tokens."""
        constraint = Constraint(request.grammar, self._compiler, n_prompt) if request.grammar else None
        if request.budget:
            tokenizer = self.load_tokenizer()
            if tokenizer is None:
                raise RequestError("budget: this model has no supported tokenizer, which a reasoning budget needs")
            check_ids(request.budget.closing, self.n_vocab)
            return [BudgetedReasoning(request.budget, tokenizer, self.n_vocab, n_prompt, constraint)]
        return [constraint] if constraint else []


def check_proposers(
    choice: str | None, known: Collection[str], verifies: bool = True, error: type[PumiceError] = RequestError
) -> None:
    """Raise ``error`` for names that are no proposers of this model, occur twice, or stand alone (``auto``)."""
    names = [] if choice is None or choice in ALONE else names_of(choice)
    for name in names:
        if name in known and names.count(name) > 1:
            raise error(f"speculate: {name!r} is named twice, in {choice!r}; name each proposer once")
        if name in known:
            continue
        if name in ALONE or not name:
            alone = f"{name!r} stands alone" if name else "a name is empty"
            raise error(f"speculate: {alone}, in {choice!r}: use auto, off, or names of proposers with commas between")
        if name in COMPUTED and not verifies:
            raise error(f"speculate: {name!r}: {VERIFIES_NONE}")
        if name in COMPUTED:
            raise error(f"speculate: {NEEDS_DRAFT if name == 'draft' else NEEDS_LAYER}")
        raise error(f"speculate: {unknown_name('proposer', name, [*known, *ALONE])}")


def check_diffusion(request: Request, masks: Masks | None) -> None:
    """Raise RequestError for options of diffusion that the model does not support, that are too large, or missing."""
    if masks is None:
        for field in dataclasses.fields(Request):
            if field.name in OF_DIFFUSION and getattr(request, field.name) != field.default:
                raise RequestError(f"{field.name}: this model does not generate by diffusion; remove the option")
        return
    if (request.diffusion_steps or 0) > MOST_DIFFUSION_STEPS:
        raise RequestError(f"diffusion_steps must be at most {MOST_DIFFUSION_STEPS}, not {request.diffusion_steps}")
    lacking = {
        "a grammar": request.grammar is not None,
        "a budget of reasoning": request.budget is not None,
        "logprobs": request.logprobs is not None,
        "min_tokens": request.min_tokens > 0,
        "context_shift": request.context_shift,
        "logits_processor": request.logits_processor is not None,
        "stopping_criteria": request.stopping_criteria is not None,
        "on_layer": request.on_layer is not None,
    }
    for name, asked in lacking.items():
        if asked:
            raise RequestError(f"{name} is not supported by models that generate by diffusion")
