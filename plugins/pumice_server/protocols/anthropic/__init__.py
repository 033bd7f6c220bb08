"""Anthropic's protocol: messages."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.plugin.unstable import Endpoint, ServerProtocol
from pumice_server.interface import Settings, post
from pumice_server.protocols.anthropic.messages import count_tokens, error_body, messages


def endpoints(settings: Settings) -> Sequence[Endpoint]:
    return [post(messages, "/v1/messages"), post(count_tokens, "/v1/messages/count_tokens")]


PROTOCOL = ServerProtocol("Anthropic", endpoints, "/v1/messages", error_body)
