"""Chats with a model whose answers are given: a sampler writes them, token by token."""

import asyncio

import pytest

import pumice
from scripted_calls import scripted_model

USER = {"role": "user", "content": "Hi"}
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CLOSED = {"type": "object", "additionalProperties": False}
HARMONY = (
    "{# <|channel|><|message|> #}{{ messages[0].content }}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with scripted_model(tmp_path_factory.mktemp("chat"), "recital", n_ctx=1024) as model:
        yield model


def test_an_answer_is_a_message(model):
    completion = model.chat([USER], recite="<think>\nWell\n</think>\n\nHello!")
    assert (completion.message.content, completion.message.reasoning) == ("Hello!", "Well")
    assert completion.finish_reason == "stop"
    assert completion.message.tool_calls == []
    usage = completion.usage
    assert usage.prompt_tokens == len(model.tokenizer.tokenize(model.template.apply([USER])))
    assert usage.completion_tokens == len(completion.tokens) == len("<think>\nWell\n</think>\n\nHello!")
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.reasoning_tokens < usage.completion_tokens


def test_deltas_together_are_the_message(model):
    text = "<think>Well</think>Hello!" + CALL
    deltas = list(model.chat_stream([USER], tools=[TOOL], recite=text))
    assert "".join(delta.content for delta in deltas) == "Hello!"
    assert "".join(delta.reasoning for delta in deltas) == "Well"
    [call] = [call for delta in deltas for call in delta.tool_calls]
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason == "tool_calls"
    assert deltas[-1].usage.completion_tokens == len(text)
    assert len(deltas) > 5


def test_logprobs_are_of_every_token(model):
    assert model.chat([USER], recite="<think>a</think>bc").logprobs is None  # from here on all is in the cache
    completion = model.chat([USER], recite="<think>a</think>bc", logprobs=2)
    assert [each.token for each in completion.logprobs] == completion.tokens
    assert all(len(each.top) == 2 and each.logprob <= 0 for each in completion.logprobs)
    deltas = list(model.chat_stream([USER], recite="<think>a</think>bc", logprobs=2))
    assert [each for delta in deltas for each in delta.logprobs] == completion.logprobs


def test_a_call_that_max_tokens_cuts_is_partial(model):
    n = len(model.chat([USER], tools=[TOOL], recite=CALL).tokens)
    cut = model.chat([USER], tools=[TOOL], recite=CALL, max_tokens=n - 20)
    [call] = cut.message.tool_calls
    assert (cut.finish_reason, call.name, call.partial, cut.message.content) == ("length", "get_weather", True, "")
    [*_, end] = model.chat_stream([USER], tools=[TOOL], recite=CALL, max_tokens=n - 20)
    assert (end.finish_reason, [each.name for each in end.tool_calls]) == ("length", ["get_weather"])


def test_calls_and_their_results_go_back(model):
    first = model.chat([USER], tools=[TOOL], recite=CALL)
    assert first.finish_reason == "tool_calls"
    [call] = first.message.tool_calls
    assert len(call.id) == 9
    assert call.id.isalnum()
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    prompt = model.template.apply([USER, first.message, result], tools=[TOOL])
    assert CALL in prompt
    assert "tool\nsunny" in prompt


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.rm <|constrain|>json<|message|>",
        "<|channel|>analysis to=container.exec code<|message|>",
        " to=functions.rm<|channel|>commentary json<|message|>",
        " to=python<|channel|>analysis<|message|>",
        "<|channel|>analysis<|message|>Well<|end|><|start|>assistant to=functions.rm<|channel|>commentary<|message|>",
        "<|channel|>commentary<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.a<|message|>",
    ],
)
def test_a_recipient_of_gpt_oss_is_a_tool_and_gets_its_arguments(model, header):
    strict = {**TOOL, "parameters": {**TOOL["parameters"], **CLOSED}}
    options = {"tools": [strict, {"name": "get_time", "parameters": CLOSED}], "chat_template": HARMONY}
    wrong = '{"city": 7, "all": true}'
    completion = model.chat([USER], recite=header + wrong, **options)
    [call] = completion.message.tool_calls
    assert call.name in ("get_weather", "get_time")
    assert set(call.arguments) <= {"city"}
    assert wrong[1:].endswith(completion.message.content.removeprefix("Hm."))  # the call may end before what it recites
    assert completion.message.reasoning in ("", "Well")


def test_leaving_a_stream_cancels_it(model):
    with model.chat_stream([USER], recite="x" * 20_000, context_shift=True) as stream:
        next(stream)
    assert stream.timings.generated_tokens < 20_000


def test_a_budget_ends_the_reasoning(model):
    text = "<think>" + "hm " * 40
    options = {"recite": text, "after": "</think>\n\n", "then": "Hello!"}
    completion = model.chat([USER], reasoning_budget=12, **options)
    assert completion.message.content == "Hello!"
    assert completion.message.reasoning == "hm hm hm hm"
    n_mark, n_end = (len(model.tokenizer.tokenize_following(text)) for text in ("\n</think>", "\n</think>\n\n"))
    assert completion.usage.reasoning_tokens == 12 + n_mark
    assert completion.usage.completion_tokens == len("<think>") + 12 + n_end + len("Hello!")
    assert asyncio.run(model.achat([USER], reasoning_budget=12, **options)).message == completion.message
    short = model.chat([USER], reasoning_budget=12, max_tokens=len("<think>") + 12 + n_end + 2, **options)
    assert (short.message.content, short.finish_reason) == ("He", "length")
    assert model.chat([USER], reasoning_budget=100, recite="<think>a</think>b").message.content == "b"
    with model.chat_stream([USER], reasoning_budget=12, **options) as stream:
        usage, timings = stream.completion().usage, stream.timings
    assert (timings.prompt_tokens, timings.generated_tokens) == (usage.prompt_tokens, usage.completion_tokens)
    assert timings.prompt_cached == usage.cached_tokens


def test_reasoning_is_ended_while_it_goes_on(model):
    """At once, not where its budget would end it; where nothing is reasoned, or there is no budget, nothing changes."""
    options = {"recite": "<think>" + "hm " * 600, "after": "</think>\n\n", "then": "Hello!"}
    with model.chat_stream([USER], reasoning_budget=10**6, **options) as stream:
        next(stream)
        stream.end_reasoning()
        message = stream.completion().message
    assert message.content == "Hello!"
    assert 0 < len(message.reasoning) < len("hm " * 600)
    for more in ({"recite": "no thoughts", "reasoning_budget": 9}, {"recite": "<think>a</think>no thoughts"}):
        with model.chat_stream([USER], **more) as stream:
            stream.end_reasoning()
            assert stream.completion().message.content == "no thoughts"
            stream.end_reasoning()


def test_an_answer_goes_on(model):
    begun = {"role": "assistant", "content": "Hel"}
    assert model.template.apply([USER, begun]).endswith("assistant\nHel")
    assert model.chat([USER, begun], recite="lo").message.content == "lo"
    reasoned = {"role": "assistant", "content": "", "reasoning": "We"}
    completion = model.chat([USER, reasoned], recite="ll</think>Hi")
    assert (completion.message.reasoning, completion.message.content) == ("ll", "Hi")


def test_a_plugins_format_is_known_by_its_marks(model):
    template = "{# <stone> #}{% for m in messages %}{{ m.content }}{% endfor %}"
    completion = model.chat(
        [USER],
        chat_template=template,
        tools=[TOOL],
        recite='<muse>so</muse><stone>{"name": "get_weather", "arguments": {}}</stone>',
    )
    assert completion.message.reasoning == "so"
    assert [call.name for call in completion.message.tool_calls] == ["get_weather"]


def test_a_template_per_request(model):
    assert model.template.apply([USER], chat_template="llama3").startswith("<|start_header_id|>user")
    with pytest.raises(pumice.RequestError, match="unknown chat template"):
        model.chat([USER], chat_template="unheard-of")
    with pytest.raises(pumice.RequestError, match="unknown chat template 'lama3'; did you mean 'llama3'"):
        pumice.load(config={"chat_template": "lama3"})


def test_a_mistyped_role_is_refused_and_a_role_of_the_template_is_not(model):
    chat = [{"role": "usr", "content": "Hi"}]
    with pytest.raises(pumice.RequestError, match=r"messages\[0\]\.role: unknown role 'usr'; did you mean 'user'"):
        model.template.apply(chat, chat_template="plain")
    own = "{% for m in messages %}{% if m.role == 'usr' %}{{ m.content }}{% endif %}{% endfor %}"
    assert "Hi" in model.template.apply(chat, chat_template=own)
    assert "Hi" in model.template.apply([{"role": "critic", "content": "Hi"}], chat_template="chatml")


def test_the_mark_of_a_built_in_template_ends_an_answer(model):
    text = "Hello!<|im_end|>\n<|im_start|>user"
    for more in ({}, {"stop": "%"}, {"stop": ["%", "$"]}):
        answer = model.chat([USER], chat_template="chatml", recite=text, **more)
        assert (answer.message.content, answer.finish_reason) == ("Hello!", "stop")
    assert model.chat([USER], chat_template="chatml", recite=text, stop="!").message.content == "Hello"
    assert model.chat([USER], chat_template="llama3", recite=text).message.content == text
