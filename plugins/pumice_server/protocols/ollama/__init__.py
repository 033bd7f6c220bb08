"""Ollama's protocol: chats, embeddings, and models that clients fetch, upload and name."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.plugin.unstable import Endpoint, ServerProtocol
from pumice_server.interface import Settings, delete, get, post
from pumice_server.protocols.ollama import blobs, chat, create, embeddings, facts, pull

_BLOB = "/api/blobs/{digest}"


def endpoints(settings: Settings) -> Sequence[Endpoint]:
    return [
        get(facts.tags, "/api/tags"),
        get(facts.running, "/api/ps"),
        get(facts.version, "/api/version"),
        get(blobs.find_blob, _BLOB, scope="admin"),
        post(chat.chat, "/api/chat"),
        post(chat.generate, "/api/generate"),
        post(facts.show, "/api/show"),
        post(embeddings.ollama, "/api/embed"),
        post(embeddings.ollama_one, "/api/embeddings"),
        post(pull.pull, "/api/pull", scope="admin"),
        post(create.create, "/api/create", scope="admin"),
        post(create.copy, "/api/copy", scope="admin"),
        post(blobs.upload, _BLOB, scope="admin", uploads=True),
        post(blobs.refuse_push, "/api/push"),
        delete(create.delete, "/api/delete", scope="admin"),
    ]


PROTOCOL = ServerProtocol("Ollama", endpoints, "/api/", chat.error_body)
