"""All that a protocol uses of the server: requests, answers, and loaded models."""

from pumice_server.errors import (
    TOO_LONG as TOO_LONG,
    UnwritableError as UnwritableError,
    bad_request as bad_request,
    no_model as no_model,
    problem_of as problem_of,
    too_late as too_late,
    without_folders as without_folders,
)
from pumice_server.http.answers import (
    DONE as DONE,
    JSON as JSON,
    NDJSON as NDJSON,
    Streaming as Streaming,
    Whole as Whole,
    Wire as Wire,
    event as event,
    json_response as json_response,
    make_answer as make_answer,
    to_json as to_json,
    unless_gone as unless_gone,
)
from pumice_server.http.bodies import (
    SAMPLING as SAMPLING,
    AdapterFile as AdapterFile,
    Caching as Caching,
    ChatPromptBody as ChatPromptBody,
    Generation as Generation,
    ModelBody as ModelBody,
    Scales as Scales,
    TemplateBody as TemplateBody,
    TextBody as TextBody,
)
from pumice_server.http.body import Body as Body, arriving as arriving, set_size as set_size
from pumice_server.http.resumable import KeptStreams as KeptStreams, streaming as streaming
from pumice_server.http.routes import delete as delete, get as get, post as post
from pumice_server.jobs.form import Field as Field, read_form as read_form
from pumice_server.models.embedding import (
    count_tokens as count_tokens,
    embed_texts as embed_texts,
    read_texts as read_texts,
    vectors_size as vectors_size,
)
from pumice_server.models.figures import (
    LEAST_LOGPROB as LEAST_LOGPROB,
    HasLogprob as HasLogprob,
    TokenBytes as TokenBytes,
    build_info as build_info,
    finish_reason as finish_reason,
    size_of as size_of,
    timings as timings,
    token_logprob as token_logprob,
    usage as usage,
)
from pumice_server.models.generation_settings import generation_settings as generation_settings
from pumice_server.models.model_service import SlotText as SlotText, snapshot_of as snapshot_of
from pumice_server.models.model_texts import WORK as WORK, TextOrTokens as TextOrTokens
from pumice_server.models.options import (
    PROMPT_FIELDS as PROMPT_FIELDS,
    caching_options as caching_options,
    chat_prompt_options as chat_prompt_options,
    generation_options as generation_options,
    present as present,
    prompt_of as prompt_of,
    scales_by_name as scales_by_name,
    template_options as template_options,
)
from pumice_server.models.prompts import (
    check_fills_in as check_fills_in,
    fill_in as fill_in,
    is_mixed as is_mixed,
    media_prompt as media_prompt,
    mixed_tokens as mixed_tokens,
    prompt_string as prompt_string,
    read_prompts as read_prompts,
)
from pumice_server.models.report import Reading as Reading, Report as Report
from pumice_server.models.served_model import ServedModel as ServedModel
from pumice_server.models.served_models import Models as Models, service_of as service_of
from pumice_server.models.service import (
    CompletionProgress as CompletionProgress,
    MediaPrompt as MediaPrompt,
    Service as Service,
    has_media as has_media,
)
from pumice_server.models.streams import merge as merge
from pumice_server.pools import FACTS as FACTS, FILES as FILES, MEDIA as MEDIA, PREPARATION as PREPARATION
from pumice_server.settings import Settings as Settings
from pumice_server.work import aside as aside
