"""Vertex AI's protocol for containers: several chats in one request."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.plugin.unstable import Endpoint, ServerProtocol
from pumice_server.interface import Settings, post
from pumice_server.protocols.vertex.predict import predict


def endpoints(settings: Settings) -> Sequence[Endpoint]:
    return [post(predict, settings.predict_route)] if settings.predict_route else []


PROTOCOL = ServerProtocol("Vertex AI", endpoints)
