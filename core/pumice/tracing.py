"""Trace a model file to its graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from pumice.architecture import DRAFT, ENCODER, FEATURES, MAIN, MEDIA, MEDIA_TOGETHER, STREAM, Architecture
from pumice.errors import ModelError
from pumice.gguf import GGUFFile
from pumice.graph import N_OUTPUTS, Graph, GraphBuilder, RecurrentState
from pumice.graph.builder import NoTargetError, unread_tensors
from pumice.graph.media import with_media
from pumice.wording import counted_as

logger = logging.getLogger("pumice")

EMBED = "embed"  # the main graph up to its hidden states, if it also has logits; compiled on first use
STREAMED = "streamed"  # the main graph with its stream, where the main one is without, so that a program picks tokens
SPEAK = "speak"  # the main graph with hidden states and logits, for steps with media; compiled on first use
MEDIA_GRAPHS: Mapping[tuple[str, bool], str] = {
    (MAIN, False): MEDIA,
    (MAIN, True): MEDIA_TOGETHER,
    (EMBED, False): "embed media",
    (EMBED, True): "embed media together",
}
"""Graphs for steps with media, by the graph in whose place they are, and by ``Batch.together``."""

_SOMETIMES_READ = ("rope_factors_", "indexer", "nextn.", ".vis_", ".input_scale")
"""Parts of names of tensors that only some contexts, drafts, prompts with images, or 4-bit activations need."""
_OF_ENCODER = ("a.", "v.", "mm.")
"""Starts of names of tensors of an encoder of media, which a file such as Whisper's has beside the decoder's."""

OF_ANOTHER = "a draft model is loaded with the model that it was trained for"
"""The end of errors of draft models that may belong to another model."""

DraftSource = tuple[GGUFFile, Architecture]
"""The file and the architecture of a draft model."""


def apart_from_stream(graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """Return graphs whose main one has no output ``STREAM``, so that its program may pick tokens.

    Steps whose stream is wanted run the graph ``STREAMED``, with the same weights and caches.
    """
    main = graphs[MAIN]
    if STREAM not in main.outputs:
        return dict(graphs)
    return {**graphs, MAIN: main.only(set(main.outputs) - {STREAM}), STREAMED: main}


def trace(
    file: GGUFFile,
    architecture: Architecture,
    n_ctx: int,
    draft: DraftSource | None = None,
    media: bool = False,
    embeds_media: bool = False,
    keeps_stream: bool = False,
) -> dict[str, Graph]:
    """Trace the model's graphs, and those of its draft model.

    With ``media`` also those for prompts with media, and with ``embeds_media`` those for embeddings of media, unless
    the architecture uses token ids for more than embeddings, or an encoder reads the prompt.

    ``keeps_stream``: the main graph has the output ``STREAM`` if a layer of the model, or the draft model, can draft
    from it.

    A warning names tensors of the file that no graph reads. Raises ModelError, with the file's name, for a missing
    tensor or a wrong shape.
    """
    graphs, unread = _trace_all(file, architecture, n_ctx, draft, media, embeds_media, keeps_stream)
    if unread:
        logger.warning("%s: %s", file.path, unread_message(unread, architecture.hparams.architecture))
    return graphs


def unused_tensors(file: GGUFFile, architecture: Architecture, n_ctx: int) -> list[str]:
    """Return the sorted names of tensors that a model does not use. Raises ModelError as ``trace`` does."""
    return _trace_all(file, architecture, n_ctx, media=True, embeds_media=True)[1]


def unread_message(names: Sequence[str], architecture: str) -> str:
    """Return one line about tensors that the models of an architecture do not use."""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    counted = counted_as(len(names), "tensor")
    return f"the architecture {architecture} has no use for {counted}: {shown}; the file may belong to another one"


def _trace_all(
    file: GGUFFile,
    architecture: Architecture,
    n_ctx: int,
    draft: DraftSource | None = None,
    media: bool = False,
    embeds_media: bool = False,
    keeps_stream: bool = False,
) -> tuple[dict[str, Graph], list[str]]:
    """Return what ``trace`` returns, and the sorted names of tensors that no graph reads."""
    graphs, builder = _trace(file, architecture, partial(GraphBuilder, n_ctx=n_ctx))
    if draft:
        graphs |= _trace_draft(*draft, builder)
        if keeps_stream and FEATURES in graphs:
            graphs[MAIN] = _with_features(graphs, *draft)
    main = graphs[MAIN]
    keeps = {STREAM} if keeps_stream and continues(graphs) else set()
    if {"logits", "hidden"} <= set(main.outputs) and "hidden" not in main.inputs:  # a draft's graph has both
        outputs = set(main.outputs) - {"hidden", STREAM} | keeps
        graphs |= {MAIN: main.only(outputs), EMBED: main.only(["hidden"])}
    reads_prompt = "logits" in main.outputs and not main.needs_whole_sequences
    embeds = embeds_media and "hidden" in main.outputs and "hidden" not in main.inputs
    if ENCODER not in graphs and ((media and reads_prompt) or (embeds and EMBED not in graphs)):
        graphs |= _media_graphs(graphs, MAIN, architecture)
    if ENCODER not in graphs and embeds and EMBED in graphs:
        graphs |= _media_graphs(graphs, EMBED, architecture)
        speaks = architecture.speaks_tokens and with_media(main.only(["hidden", "logits"]), architecture.media_rules)
        graphs |= {SPEAK: speaks} if speaks else {}
    unread = unread_tensors(builder, max(architecture.hparams.get_int("block_count", 0), architecture.n_layer))
    if any(key.startswith("clip.has_") for key in file.metadata):
        unread = [name for name in unread if not name.startswith(_OF_ENCODER)]
    return graphs, sorted(name for name in unread if not any(part in name for part in _SOMETIMES_READ))


def _media_graphs(graphs: Mapping[str, Graph], name: str, architecture: Architecture) -> dict[str, Graph]:
    """Return the graphs that compute what a graph does, for media; none if the model cannot have them."""
    rules = architecture.media_rules
    forms = (False, True) if rules.both_ways else (False,)
    mixed = {MEDIA_GRAPHS[name, form]: with_media(graphs[name], rules, form) for form in forms}
    return {name: graph for name, graph in mixed.items() if graph}


def continues(graphs: Mapping[str, Graph]) -> bool:
    """Return True if a layer can draft from the stream of the main graph, as it is or as features of a draft model."""
    stream, draft, features = graphs[MAIN].outputs.get(STREAM), graphs.get(DRAFT), graphs.get(FEATURES)
    if stream is None or draft is None or not (draft.block or "hidden" in draft.inputs):
        return False
    if features is None and stream.shape[1:] != draft.inputs["hidden"].shape[1:]:
        return False
    own = set(draft.states) - set(graphs[MAIN].states)
    return not any(isinstance(state, RecurrentState) for state in own)


def trace_alone(draft: DraftSource, n_ctx: int) -> dict[str, Graph] | None:
    """Return the graphs of a draft model that needs no target model; None if it reads values of its target.

    Its context is at most the one that it was trained for.
    """
    file, architecture = draft
    n_ctx = min(n_ctx, architecture.n_ctx_train)
    try:
        graphs, _ = _trace(file, architecture, partial(GraphBuilder, n_ctx=n_ctx, is_draft=True))
    except NoTargetError:
        return None
    main = graphs[MAIN]
    if "hidden" in main.inputs or FEATURES in graphs:
        return None
    outputs = {"logits"} if "logits" in main.outputs else set(main.outputs)
    return {name: graph for name, graph in graphs.items() if name == ENCODER} | {MAIN: main.only(outputs)}


def _with_features(graphs: Mapping[str, Graph], file: GGUFFile, architecture: Architecture) -> Graph:
    """Return the main graph with the output ``STREAM``: the inputs of the layers that the draft reads.

    Raises ModelError if the draft belongs to another model.
    """
    main, features = graphs[MAIN], graphs[FEATURES].inputs["features"]
    outputs, layers = main.layer_outputs, architecture.target_layers
    if not layers or min(layers) < 1 or max(layers) > len(outputs):
        raise ModelError(
            f"{file.path}: target_layers is {list(layers)}, expected numbers from 1 to {len(outputs)}; {OF_ANOTHER}"
        )
    g = outputs[0].builder
    assert isinstance(g, GraphBuilder)
    with g.collecting() as nodes:
        stream = reduce(g.concat, (outputs[layer - 1] for layer in layers))
    if stream.shape[1:] != features.shape[1:]:
        raise ModelError(
            f"{file.path}: this draft model reads {features.shape[1]} values per token from layers {list(layers)}, but "
            f"the model has {stream.shape[1]} there; {OF_ANOTHER}"
        )
    return replace(main, nodes=[*main.nodes, *nodes], outputs={**main.outputs, STREAM: stream})


def _trace_draft(file: GGUFFile, architecture: Architecture, target: GraphBuilder) -> dict[str, Graph]:
    """Return the graphs of a draft model for the model traced by ``target``, the main one as ``DRAFT``."""
    try:
        graphs, _ = _trace(file, architecture, partial(GraphBuilder, n_ctx=target.n_ctx, target=target))
    except ModelError as error:
        raise type(error)(f"{error}; {OF_ANOTHER}") from None
    main, features = graphs[MAIN], graphs.get(FEATURES)
    if features is None and "hidden" not in main.inputs:
        raise ModelError(f"{file.path}: not a draft model: it uses no values of the target model")
    return {FEATURES: features, DRAFT: main} if features else {DRAFT: main}


def _trace(
    file: GGUFFile, architecture: Architecture, new_builder: Callable[..., GraphBuilder]
) -> tuple[dict[str, Graph], GraphBuilder]:
    """Return the graphs of a file by name, and the builder of the last one."""
    graphs: dict[str, Graph] = {}
    builder: GraphBuilder | None = None
    try:
        tensors = architecture.tensors(file.tensors)
        for name, build in architecture.graphs().items():
            builder = new_builder(tensors=tensors, n_layer=architecture.n_layer, shared=builder)
            logits = build(builder)
            if name == MAIN or builder.outputs:
                graphs[name] = builder.finish(logits)
                _check_logits(graphs[name], file)
        if builder is None or MAIN not in graphs:
            raise ModelError(f"the architecture has the graphs {sorted(graphs)}, but no graph {MAIN}")
    except ModelError as error:
        raise type(error)(f"{file.path}: {error}") from None
    return graphs, builder


def prompts_of(graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """Return the graphs for steps in which every sequence begins, for graphs that have one."""
    return {name: prompts for name, graph in graphs.items() if (prompts := graph.for_prompts())}


def _check_logits(graph: Graph, file: GGUFFile) -> None:
    """Check that logits have a row per output rather than per token."""
    logits = graph.outputs.get("logits")
    if logits is None:
        return
    if len(logits.shape) != 2 or logits.shape[0] != N_OUTPUTS:
        raise ModelError(
            f"the architecture's logits {logits} must be [n_outputs, n_vocab]; select the rows g.output_ids of the "
            f"activations, with g.get_rows, before the output matrix"
        )
    n_tokens = file.metadata.count("tokenizer.ggml.tokens")
    if int(logits.shape[1]) < n_tokens:
        raise ModelError(f"the architecture has {logits.shape[1]} logits, but the vocabulary has {n_tokens} tokens")
