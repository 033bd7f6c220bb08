"""llama-server's protocol: completions, tokens, slots, adapters, properties, and models to load and unload."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.plugin.unstable import Endpoint, ServerProtocol
from pumice_server.interface import Settings, delete, get, post
from pumice_server.protocols.llama_server import (
    adapters,
    completion,
    embeddings,
    infill,
    props,
    router,
    slots,
    streams,
    texts,
    tools,
)

_KEPT = ("/v1/stream", "/v1/stream/{id:path}")


def endpoints(settings: Settings) -> Sequence[Endpoint]:
    return [
        get(router.follow, "/models/sse"),
        get(props.props, "/props"),
        get(slots.slots, "/slots", scope="admin"),
        get(adapters.list_adapters, "/lora-adapters"),
        get(tools.list_tools, "/tools"),
        get(streams.resume, *_KEPT),
        post(completion.completion, "/completion", "/completions"),
        post(embeddings.native, "/embedding", "/embeddings"),
        post(embeddings.rerank, "/rerank", "/reranking", "/v1/rerank", "/v1/reranking"),
        post(infill.infill, "/infill"),
        post(slots.act, "/slots/{id}", scope="admin"),
        post(tools.call_tool, "/tools"),
        post(streams.lookup, "/v1/streams/lookup"),
        post(adapters.change_adapters, "/lora-adapters", scope="admin"),
        post(router.fetch, "/models", scope="admin"),
        post(router.load_model, "/models/load", scope="admin"),
        post(router.unload_model, "/models/unload", scope="admin"),
        post(props.change_props, "/props"),
        post(texts.tokenize, "/tokenize"),
        post(texts.detokenize, "/detokenize"),
        post(texts.apply_template, "/apply-template"),
        get(router.no_proxy, "/cors-proxy"),
        post(router.no_proxy, "/cors-proxy"),
        delete(streams.stop, *_KEPT),
        delete(adapters.remove_adapter, "/lora-adapters", scope="admin"),
        delete(router.delete, "/models", scope="admin"),
    ]


PROTOCOL = ServerProtocol("llama-server", endpoints)
