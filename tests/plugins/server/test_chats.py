"""Chats and completions by the official client of every protocol, and clients that leave."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import httpx2
import ollama
import pytest

from imported_late import Late
from server_thread import running
from waiting import PATIENCE, wait_until

anthropic = Late("anthropic")
openai = Late("openai")

PROMPT = "Once upon a time"
CHAT = [{"role": "user", "content": PROMPT}]
N_TOKENS = 12


class Said(NamedTuple):
    text: str
    reason: str
    n_prompt: int
    n_generated: int


def by_openai(url: str, stream: bool, **more: Any) -> Said:
    create = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0).chat.completions.create
    options = {"model": "demo", "messages": CHAT, "temperature": 0, "max_tokens": N_TOKENS, **more}
    if not stream:
        made = create(**options)
        (choice,) = made.choices
        assert (choice.message.role, made.model) == ("assistant", "demo")
        usage = made.usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        return Said(choice.message.content, choice.finish_reason, usage.prompt_tokens, usage.completion_tokens)
    *chunks, last = create(**options, stream=True, stream_options={"include_usage": True})
    assert chunks[0].choices[0].delta.role == "assistant"
    assert (len({chunk.id for chunk in [*chunks, last]}), last.choices) == (1, [])
    (reason,) = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return Said(text, reason, last.usage.prompt_tokens, last.usage.completion_tokens)


def by_completions(url: str, stream: bool, **more: Any) -> Said:
    create = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0).completions.create
    options = {"model": "demo", "prompt": PROMPT, "temperature": 0, "max_tokens": N_TOKENS, **more}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = create(**options, **streamed) if stream else [create(**options)]
    choices = [choice for chunk in [*chunks, last] for choice in chunk.choices]
    text = "".join(choice.text for choice in choices)
    return Said(text, choices[-1].finish_reason, last.usage.prompt_tokens, last.usage.completion_tokens)


def by_responses(url: str, stream: bool, **more: Any) -> Said:
    responses = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0).responses
    options = {"model": "demo", "input": PROMPT, "temperature": 0, "max_output_tokens": N_TOKENS, **more}
    if stream:
        with responses.stream(**options) as events:
            told = list(events)
        made = told[-1].response
        assert "".join(each.delta for each in told if each.type == "response.output_text.delta") == made.output_text
        assert [each.sequence_number for each in told] == list(range(len(told)))
        assert [told[0].type, told[-1].type] == ["response.created", f"response.{made.status}"]
    else:
        made = responses.create(**options)
    reason = made.incomplete_details.reason if made.incomplete_details else made.status
    return Said(made.output_text, reason, made.usage.input_tokens, made.usage.output_tokens)


def by_anthropic(url: str, stream: bool, **more: Any) -> Said:
    client = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0)
    options = {"model": "demo", "messages": CHAT, "max_tokens": N_TOKENS, "extra_body": {"temperature": 0}, **more}
    if stream:
        with client.messages.stream(**options) as events:
            text = "".join(events.text_stream)
            made = events.get_final_message()
        assert text == made.content[0].text
    else:
        made = client.messages.create(**options)
    (block,) = made.content
    n_prompt = made.usage.input_tokens + made.usage.cache_read_input_tokens
    return Said(block.text, made.stop_reason, n_prompt, made.usage.output_tokens)


def by_ollama(method: str, url: str, stream: bool, options: Any = None, **more: Any) -> Said:
    chats = method == "chat"
    given = {"messages": CHAT} if chats else {"prompt": PROMPT}
    options = {"temperature": 0, "num_predict": N_TOKENS, **(options or {})}
    made = getattr(ollama.Client(host=url), method)(model="demo", options=options, stream=stream, **given, **more)
    *parts, last = made if stream else [made]
    assert ([part.done for part in parts], last.done) == ([False] * len(parts), True)
    assert last.total_duration >= last.eval_duration > 0
    text = "".join(part.message.content if chats else part.response for part in [*parts, last])
    return Said(text, last.done_reason, last.prompt_eval_count, last.eval_count)


CLIENTS: dict[str, tuple[Callable[..., Said], str]] = {  # and what they call the reason of a limit
    "openai": (by_openai, "length"),
    "responses": (by_responses, "max_output_tokens"),
    "anthropic": (by_anthropic, "max_tokens"),
    "ollama": (partial(by_ollama, "chat"), "length"),
    "ollama, generate": (partial(by_ollama, "generate"), "length"),
    "completions": (by_completions, "length"),
    "ollama, raw": (partial(by_ollama, "generate", raw=True), "length"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CLIENTS)
def test_answers_are_those_of_the_library(server, name, stream):
    ask, reason = CLIENTS[name]
    if name in ("completions", "ollama, raw"):
        made = server.model.generate(PROMPT, temperature=0, max_tokens=N_TOKENS)
        text, n_prompt = made.text, made.timings.prompt_tokens
    else:
        made = server.model.chat(CHAT, temperature=0, max_tokens=N_TOKENS)
        text, n_prompt = made.message.content, made.usage.prompt_tokens
    assert ask(server.url, stream) == Said(text, reason, n_prompt, N_TOKENS)


SCHEMA = {
    "type": "object", "properties": {"age": {"enum": [3, 4]}}, "required": ["age"], "additionalProperties": False,
}  # fmt: skip
NAMED = {"type": "json_schema", "name": "person", "schema": SCHEMA}
FORM = {"type": "json_schema", "schema": SCHEMA}
SCHEMAS = [
    ("openai", {"response_format": {"type": "json_schema", "json_schema": NAMED}, "max_tokens": 60}),
    ("responses", {"text": {"format": NAMED}, "max_output_tokens": 60}),
    ("anthropic", {"output_config": {"format": FORM, "effort": "max"}, "max_tokens": 60}),
    ("anthropic", {"extra_body": {"output_format": FORM}, "max_tokens": 60}),  # before it had its place
    ("ollama", {"format": SCHEMA, "options": {"num_predict": 60}}),
]


@pytest.mark.parametrize(("name", "fields"), SCHEMAS)
def test_a_schema_is_kept_to(server, name, fields):
    assert json.loads(CLIENTS[name][0](server.url, False, **fields).text)["age"] in (3, 4)


ENDLESS = {"ignore_eos": True, "max_tokens": 100_000, "max_output_tokens": 100_000, "n_predict": -1}
ENDLESS["options"] = {"ignore_eos": True, "num_predict": -1}
GIVEN = {path: {"messages": CHAT} for path in ("/v1/chat/completions", "/v1/messages", "/api/chat")}
GIVEN |= {path: {"prompt": PROMPT} for path in ("/v1/completions", "/completion", "/api/generate")}
GIVEN["/v1/responses"] = {"input": PROMPT}


def test_leaving_a_stream_ends_its_generation(model):
    with running(model, context_shift=True) as server:
        for path, given in GIVEN.items():
            body = {"stream": True, **ENDLESS, **given}
            with (
                httpx2.Client(base_url=server.url, timeout=PATIENCE) as client,
                client.stream("POST", path, json=body) as response,
            ):
                assert response.status_code == 200, response.read()
                chunks = response.iter_raw()  # which closes the response when nothing refers to it
                next(chunks)
                wait_until(lambda: model.engine.snapshot().n_running == 1)
            wait_until(lambda: model.engine.snapshot().n_running == 0)
