"""All that a protocol uses of the server: requests, answers, and loaded models."""

from pumice_server.errors import (
    TOO_LONG,
    UnwritableError,
    bad_request,
    no_model,
    problem_of,
    too_late,
    without_folders,
)
from pumice_server.http.answers import (
    DONE,
    JSON,
    NDJSON,
    Streaming,
    Whole,
    Wire,
    event,
    json_response,
    make_answer,
    to_json,
    unless_gone,
)
from pumice_server.http.bodies import (
    SAMPLING,
    AdapterFile,
    ChatPromptBody,
    Generation,
    ModelBody,
    Scales,
    TemplateBody,
    TextBody,
)
from pumice_server.http.body import Body, arriving, set_size
from pumice_server.http.resumable import KeptStreams, streaming
from pumice_server.http.routes import delete, get, post
from pumice_server.jobs.form import Field, read_form
from pumice_server.models.embedding import count_tokens, embed_texts, read_texts, vectors_size
from pumice_server.models.figures import (
    LEAST_LOGPROB,
    HasLogprob,
    TokenBytes,
    build_info,
    finish_reason,
    size_of,
    timings,
    token_logprob,
    usage,
)
from pumice_server.models.generation_settings import generation_settings
from pumice_server.models.model_service import SlotText, snapshot_of
from pumice_server.models.model_texts import WORK, TextOrTokens
from pumice_server.models.options import (
    PROMPT_FIELDS,
    caching_options,
    chat_prompt_options,
    generation_options,
    present,
    prompt_of,
    scales_by_name,
    template_options,
)
from pumice_server.models.prompts import (
    check_fills_in,
    fill_in,
    is_mixed,
    media_prompt,
    mixed_tokens,
    prompt_string,
    read_prompts,
)
from pumice_server.models.report import Reading, Report
from pumice_server.models.served_model import ServedModel
from pumice_server.models.served_models import Models, service_of
from pumice_server.models.service import CompletionProgress, MediaPrompt, Service, has_media
from pumice_server.models.streams import merge
from pumice_server.pools import FACTS, FILES, MEDIA, PREPARATION
from pumice_server.settings import Settings
from pumice_server.work import aside

__all__ = [
    "DONE",
    "FACTS",
    "FILES",
    "JSON",
    "LEAST_LOGPROB",
    "MEDIA",
    "NDJSON",
    "PREPARATION",
    "PROMPT_FIELDS",
    "SAMPLING",
    "TOO_LONG",
    "WORK",
    "AdapterFile",
    "Body",
    "ChatPromptBody",
    "CompletionProgress",
    "Field",
    "Generation",
    "HasLogprob",
    "KeptStreams",
    "MediaPrompt",
    "ModelBody",
    "Models",
    "Reading",
    "Report",
    "Scales",
    "ServedModel",
    "Service",
    "Settings",
    "SlotText",
    "Streaming",
    "TemplateBody",
    "TextBody",
    "TextOrTokens",
    "TokenBytes",
    "UnwritableError",
    "Whole",
    "Wire",
    "arriving",
    "aside",
    "bad_request",
    "build_info",
    "caching_options",
    "chat_prompt_options",
    "check_fills_in",
    "count_tokens",
    "delete",
    "embed_texts",
    "event",
    "fill_in",
    "finish_reason",
    "generation_options",
    "generation_settings",
    "get",
    "has_media",
    "is_mixed",
    "json_response",
    "make_answer",
    "media_prompt",
    "merge",
    "mixed_tokens",
    "no_model",
    "post",
    "present",
    "problem_of",
    "prompt_of",
    "prompt_string",
    "read_form",
    "read_prompts",
    "read_texts",
    "scales_by_name",
    "service_of",
    "set_size",
    "size_of",
    "snapshot_of",
    "streaming",
    "template_options",
    "timings",
    "to_json",
    "token_logprob",
    "too_late",
    "unless_gone",
    "usage",
    "vectors_size",
    "without_folders",
]
