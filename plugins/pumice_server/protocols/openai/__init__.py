"""OpenAI's protocol: chats, completions, responses, embeddings, speech and transcriptions."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.plugin.unstable import Endpoint, ServerProtocol
from pumice_server.interface import Settings, delete, get, post
from pumice_server.protocols.openai import completions, embeddings, models, responses, speech, transcriptions
from pumice_server.protocols.openai.chat import chat_completions, input_tokens
from pumice_server.protocols.openai.control import RunningAnswers, control
from pumice_server.protocols.openai.response_store import ResponseStore

_CHAT = "/chat/completions"


def endpoints(settings: Settings) -> Sequence[Endpoint]:
    return [
        get(models.list_models, "/v1/models", "/models"),
        get(models.show_model, "/v1/models/{name:path}"),
        get(responses.get_response, "/v1/responses/{id}"),
        post(responses.responses, "/v1/responses", "/responses"),
        post(responses.input_tokens, "/v1/responses/input_tokens", "/responses/input_tokens"),
        post(chat_completions, f"/v1{_CHAT}", _CHAT),
        post(input_tokens, f"/v1{_CHAT}/input_tokens", f"{_CHAT}/input_tokens"),
        post(control, f"/v1{_CHAT}/control"),
        post(completions.completions, "/v1/completions"),
        post(embeddings.embeddings, "/v1/embeddings"),
        post(speech.speech, "/v1/audio/speech", "/audio/speech"),
        post(transcriptions.transcriptions, "/v1/audio/transcriptions", "/audio/transcriptions"),
        post(transcriptions.translations, "/v1/audio/translations", "/audio/translations"),
        delete(responses.delete_response, "/v1/responses/{id}"),
    ]


PROTOCOL = ServerProtocol("OpenAI", endpoints, state={"responses": ResponseStore, "running": RunningAnswers})
