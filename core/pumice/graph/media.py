"""The form of a language model's graph whose steps have rows of embeddings among their tokens."""

from __future__ import annotations

from dataclasses import replace

from pumice.graph.builder import GraphBuilder
from pumice.graph.shape import N_TOKENS
from pumice.graph.tensor import Graph

ROWS = "media_rows"  # float32 [n_tokens, n_embd]: embeddings of media; zero for tokens
IS_TOKEN = "is_token"  # float32 [n_tokens, 1]: 1 for tokens, 0 for media


def with_media(graph: Graph) -> Graph | None:
    """Return the graph with media rows in place of some token embeddings; None if it reads tokens elsewhere, too.

    Weights and caches are those of ``graph``. Where a family scales embeddings, as Gemma does, media rows are not
    scaled.
    """
    readers = [node for node in graph.nodes if graph.inputs.get("tokens") in node.operands()]
    if len(readers) != 1 or readers[0].op != "embedding":
        return None
    embedding = target = readers[0]
    following = [node for node in graph.nodes if embedding.output in node.operands()]
    if len(following) == 1 and following[0].op == "scale":
        target = following[0]
    g = embedding.output.builder
    assert isinstance(g, GraphBuilder)
    with g.collecting() as nodes:
        x = g.embedding(embedding.weight("weight"), g.tokens)
        if target is not embedding:
            x = g.apply("scale", x, **target.attrs)
        rows = g.input(ROWS, (N_TOKENS, int(x.shape[-1])))
        is_token = g.input(IS_TOKEN, (N_TOKENS, 1))
        _ = x * is_token + rows
    mixed = [replace(node, layer=target.layer) for node in nodes]
    mixed[-1] = mixed[-1].giving(target.output)
    replaced = [part for node in graph.nodes for part in (mixed if node is target else [node])]
    inputs = {**graph.inputs, ROWS: rows, IS_TOKEN: is_token}
    return replace(graph, nodes=replaced, inputs=inputs).only(graph.outputs)
