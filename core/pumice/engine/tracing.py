"""From a model file to its graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pumice.adapters import AdaptedBuilder, Adapter
from pumice.architecture import DRAFT, FEATURES, MAIN, Architecture
from pumice.errors import ModelError
from pumice.gguf import GGUFFile
from pumice.graph import N_OUTPUTS, Graph, GraphBuilder

EMBED = "embed"  # the main graph as far as its hidden states, where it has logits too; compiled when first wanted


Draft = tuple[GGUFFile, Architecture]
"""The file and the architecture of what drafts for another model."""


def trace(
    file: GGUFFile, architecture: Architecture, n_ctx: int, adapters: Sequence[Adapter] = (), draft: Draft | None = None
) -> dict[str, Graph]:
    """Build the model's graphs, and those of its draft.

    Raises ModelError, with the file's name, for a tensor missing or of a wrong shape.
    """
    new_builder = partial(AdaptedBuilder, adapters) if adapters else GraphBuilder
    graphs, builder = _trace(file, architecture, partial(new_builder, n_ctx=n_ctx))
    if isinstance(builder, AdaptedBuilder):
        builder.check_all_adapted()
    main = graphs[MAIN]
    if {"logits", "hidden"} <= set(main.outputs) and "hidden" not in main.inputs:  # else a draft's, which gives both
        graphs |= {MAIN: main.only(set(main.outputs) - {"hidden"}), EMBED: main.only(["hidden"])}
    return graphs | _trace_draft(*draft, builder) if draft else graphs


def _trace_draft(file: GGUFFile, architecture: Architecture, target: GraphBuilder) -> dict[str, Graph]:
    """The graphs of what drafts for the model that ``target`` has traced, the main one as ``DRAFT``."""
    graphs, _ = _trace(file, architecture, partial(GraphBuilder, n_ctx=target.n_ctx, target=target))
    main, features = graphs[MAIN], graphs.get(FEATURES)
    if features is None and "hidden" not in main.inputs:
        raise ModelError(f"{file.path}: is no draft: it takes nothing of another model")
    return {FEATURES: features, DRAFT: main} if features else {DRAFT: main}


def _trace(
    file: GGUFFile, architecture: Architecture, new_builder: Callable[..., GraphBuilder]
) -> tuple[dict[str, Graph], GraphBuilder]:
    """The graphs of a file by name, and the builder of the last."""
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
            raise ModelError(f"the architecture has the graphs {sorted(graphs)}, but none named {MAIN}")
    except ModelError as error:
        raise type(error)(f"{file.path}: {error}") from None
    return graphs, builder


def prompts_of(graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """Those for steps in which every sequence begins, of the graphs that have one."""
    return {name: prompts for name, graph in graphs.items() if (prompts := graph.for_prompts())}


def _check_logits(graph: Graph, file: GGUFFile) -> None:
    """Logits of all tokens would be taken for those of the wanted ones."""
    logits = graph.outputs.get("logits")
    if logits is None:
        return
    if len(logits.shape) != 2 or logits.shape[0] != N_OUTPUTS:
        raise ModelError(
            f"the architecture's logits {logits} must be [n_outputs, n_vocab]: take the rows g.output_ids of the "
            f"activations, with g.get_rows, before the output matrix"
        )
    n_tokens = len(file.metadata.get("tokenizer.ggml.tokens", ()))
    if int(logits.shape[1]) < n_tokens:
        raise ModelError(f"the architecture gives {logits.shape[1]} logits, the vocabulary has {n_tokens} tokens")
