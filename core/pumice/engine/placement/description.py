"""What a model's graphs compute: the facts that the engine needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pumice.architecture import DRAFT, ENCODER, MAIN, MEDIA, MEDIA_TOGETHER, STREAM
from pumice.engine.placement.sizing import states_of_all
from pumice.graph import DraftBlock, Graph, RecurrentState, row_size
from pumice.graph.media import ROWS
from pumice.tracing import EMBED, MEDIA_GRAPHS, STREAMED


@dataclass(frozen=True)
class ModelDescription:
    """What a model's graphs compute.

    Attributes:
        outputs: values of a row of each output, by names of graphs and outputs.
        whole: graphs that need a whole sequence in one step.
        n_vocab: logits per token, or rows of the token table in models without logits.
        generates: logits of growing sequences are computed from tokens alone.
        recurrent: there are recurrent states.
        media_width: values of a row of media in prompts; 0 if the model takes none.
        embedder: the graph that computes hidden states, ``hidden [n_outputs, n_embd]``; None without one.
        embeds_media: prompts with media can be embedded.
        listening: the graph whose steps give ``STREAM``, from which a layer drafts; None without one.
        block: how the drafting graph drafts blocks of tokens, if it does.
        drafts_from_caches: the graph that drafts has no caches of its own, but reads those of the model.
    """

    outputs: Mapping[str, Mapping[str, int]]
    whole: frozenset[str]
    n_vocab: int
    generates: bool
    recurrent: bool
    media_width: int
    embedder: str | None
    embeds_media: bool
    listening: str | None
    block: DraftBlock | None
    drafts_from_caches: bool

    @classmethod
    def of(cls, graphs: Mapping[str, Graph]) -> ModelDescription:
        """Return the description of graphs by name."""
        main, draft = graphs[MAIN], graphs.get(DRAFT)
        outputs = {
            name: {output: row_size(tensor.shape) for output, tensor in graph.outputs.items()}
            for name, graph in graphs.items()
        }
        readers = [graphs[name].inputs for name in (MEDIA, MEDIA_TOGETHER, ENCODER) if name in graphs]
        embedder = next((name for name in (ENCODER, EMBED, MAIN) if "hidden" in outputs.get(name, {})), None)
        return cls(
            outputs=outputs,
            whole=frozenset(name for name, graph in graphs.items() if graph.needs_whole_sequences),
            n_vocab=_n_vocab(main),
            generates="logits" in main.outputs and "hidden" not in main.inputs and not main.needs_whole_sequences,
            recurrent=any(isinstance(state, RecurrentState) for state in states_of_all(graphs)),
            media_width=next((int(inputs[ROWS].shape[-1]) for inputs in readers if ROWS in inputs), 0),
            embedder=embedder,
            embeds_media=any(MEDIA_GRAPHS.get((embedder or "", form)) in graphs for form in (False, True)),
            listening=next((name for name in (MAIN, STREAMED) if STREAM in outputs.get(name, {})), None),
            block=draft.block if draft else None,
            drafts_from_caches=draft is not None and set(draft.states) <= set(main.states),
        )

    @property
    def encodes(self) -> bool:
        """True if an encoder reads the prompt, and the main graph attends to its memory."""
        return ENCODER in self.outputs

    def results(self, graph: str) -> Mapping[str, int]:
        """Return the outputs of a graph by name, with their row sizes; empty for a missing graph."""
        return self.outputs.get(graph, {})


def _n_vocab(main: Graph) -> int:
    if "logits" in main.outputs:
        return int(main.outputs["logits"].shape[-1])
    tables = [node for node in main.nodes if node.op == "embedding" and node.inputs["ids"].name == "tokens"]
    return int(tables[0].weight("weight").shape[0]) if tables else 0
