"""Endpoint for OpenAI's chat completions, with the further fields of llama-server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request

import pumice
from pumice_server.answer_types import TokenCount
from pumice_server.field_types import MAX_INT
from pumice_server.interface import (
    DONE,
    PROMPT_FIELDS,
    WORK,
    ChatPromptBody,
    Reading,
    Report,
    Service,
    Streaming,
    Whole,
    aside,
    bad_request,
    caching_options,
    chat_prompt_options,
    event,
    finish_reason,
    generation_options,
    make_answer,
    present,
    service_of,
    size_of,
    streaming,
    template_options,
    timings,
    unless_gone,
)
from pumice_server.protocols.openai.answer_types import (
    AnswerMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatLogprobs,
    ChunkChoice,
    MessageDelta,
)
from pumice_server.protocols.openai.bodies import ChatBody
from pumice_server.protocols.openai.chat_answer import PartBuilder, delta_of
from pumice_server.protocols.openai.control import RunningAnswer, RunningAnswers
from pumice_server.protocols.openai.tools.chatting import answer_with_tools
from pumice_server.protocols.openai.tools.chosen import names_servers

_CHAT_FIELDS = (*PROMPT_FIELDS, "response_format", "reasoning_budget_message", "parallel_tool_calls")
"""Fields that are options of ``Model.chat`` as they are."""


async def chat_completions(request: Request, body: ChatBody) -> Whole[ChatCompletion] | Streaming[ChatCompletionChunk]:
    """Answer a chat, in the format of OpenAI's chat completions."""
    service = await service_of(request, body.model)
    options = await body.aside(chat_options, body, service, caching_options(request, body))
    report = Report(body, body.stream)
    check_turns(body, service.compat)
    if names_servers(body.tools):
        return await answer_with_tools(request, body, service, options, report)
    streams = await unless_gone(request, service.chat(body.messages, body.n, options, report.progress))
    is_verbose = service.verbose if body.verbose is None else body.verbose
    head = PartBuilder(service, options if is_verbose else None, body.prediction is not None)
    if body.stream:
        running: RunningAnswers = request.app.state.running
        running.add(head.id, RunningAnswer(request.state.client, streams, body.reasoning_control))

        def end() -> None:
            running.remove(head.id)
            service.end(streams)

        return streaming(request, _events(head, streams, report), end)
    completions = await unless_gone(request, service.gather(streams))
    n_told = len(streams[0].prompt_tokens) if head.is_verbose else 0
    return await make_answer(lambda: _answer(head, completions, streams), size_of(completions, n_told))


async def answer_chat(request: Request, service: Service, body: ChatBody) -> tuple[Callable[[], ChatCompletion], int]:
    """Return a function that builds the answer to one of several chats, and the answer's approximate bytes."""
    if names_servers(body.tools):
        raise bad_request("tools: requests of a batch run no tools of MCP servers")
    options = await body.aside(chat_options, body, service, caching_options(request, body))
    check_turns(body, service.compat)
    streams = await service.chat(body.messages, body.n, options)
    completions = await service.gather(streams)
    head = PartBuilder(service, has_prediction=body.prediction is not None)
    return partial(_answer, head, completions, streams), size_of(completions)


def check_turns(body: ChatPromptBody, compat: bool) -> None:
    """Raise HTTPException for two answers at the end of a chat, which llama-server refuses (``compat``)."""
    if compat and [message.get("role") for message in body.messages[-2:]] == ["assistant"] * 2:
        raise bad_request("messages: the last two are the assistant's, and only one can be continued")


def chat_options(body: ChatBody, service: Service, caching: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ``Model.chat`` for a request."""
    options = generation_options(body, service) | present(body, _CHAT_FIELDS) | template_options(body)
    if body.add_generation_prompt and body.continue_final_message:
        raise bad_request("add_generation_prompt and continue_final_message exclude each other")
    if body.reasoning_format is not None:
        options["separate_reasoning"] = body.reasoning_format != "none"
    if body.reasoning_control and options["reasoning_budget"] is None:
        options["reasoning_budget"] = service.with_defaults({}).get("reasoning_budget", MAX_INT)
    if body.prediction is not None:
        content = body.prediction.content
        options["prediction"] = content if isinstance(content, str) else "".join(part.text for part in content)
    if body.logprobs:
        options["logprobs"] = body.top_logprobs or 0
    elif body.n_probs:
        options["logprobs"] = body.n_probs
    elif body.top_logprobs is not None:
        raise bad_request("top_logprobs needs logprobs to be true")
    return {**options, **caching}


def _answer(
    head: PartBuilder, completions: Sequence[pumice.ChatCompletion], streams: Sequence[pumice.AsyncChatStream]
) -> ChatCompletion:
    choices = [
        ChatChoice(
            index=index,
            message=AnswerMessage(**completion.message.to_dict()),
            finish_reason=finish_reason(completion.finish_reason),
            logprobs=head.logprobs(completion.logprobs),
        )
        for index, completion in enumerate(completions)
    ]
    total = head.usage([completion.usage for completion in completions], streams)
    return head.whole(choices, usage=total, timings=timings(streams[0].timings), **head.verbose(streams[0]))


async def _events(
    head: PartBuilder, streams: Sequence[pumice.AsyncChatStream], report: Report
) -> AsyncIterator[ChatCompletionChunk | bytes]:
    def chunk(
        index: int,
        delta: MessageDelta | None = None,
        reason: str | None = None,
        logprobs: ChatLogprobs | None = None,
        others: Mapping[str, Any] | None = None,
    ) -> ChatCompletionChunk:
        choice = ChunkChoice(index=index, delta=delta or MessageDelta(), finish_reason=reason, logprobs=logprobs)
        ended = reason is not None
        return head.chunk([choice], **(report.fields(streams[index].timings, ended) if others is None else others))

    usages: list[pumice.Usage] = []
    n_calls = [0] * len(streams)
    for index in range(len(streams)):
        yield chunk(index, MessageDelta(role="assistant", content=None), others={})

    def content(index: int, text: str) -> bytes:
        return event(chunk(index, MessageDelta(content=text)))

    plain = [report.frame(partial(content, index)) for index in range(len(streams))]
    async for index, deltas in report.merge(streams):
        if isinstance(deltas, Reading):  # without the role, which was sent: some clients concatenate deltas
            yield chunk(index, others=deltas.fields)
            continue
        for delta in deltas:
            if delta.is_text:
                yield plain[index](delta.content)
                continue
            part, logprobs = delta_of(delta, n_calls[index]), head.logprobs(delta.logprobs)
            n_calls[index] += len(delta.tool_calls)
            if part or logprobs:
                yield chunk(index, part, logprobs=logprobs)
            if delta.finish_reason and delta.usage:
                usages.append(delta.usage)
                verbose = await aside(head.verbose, streams[index], size=WORK * len(streams[index].prompt_tokens))
                fields = {**report.fields(streams[index].timings, ended=True), **verbose}
                yield chunk(index, None, finish_reason(delta.finish_reason), others=fields)
    if report.usage:
        yield head.chunk([], usage=head.usage(usages, streams), timings=timings(streams[0].timings))
    yield DONE


async def input_tokens(request: Request, body: ChatPromptBody) -> TokenCount:
    """Count the tokens of a chat's prompt."""
    service = await service_of(request, body.model)
    options = chat_prompt_options(body) | caching_options(request, body)
    n_tokens = await unless_gone(request, service.count_tokens(body.messages, options))
    return TokenCount(object="response.input_tokens", input_tokens=n_tokens)
