"""OpenAI's own client against the server: chats, completions, streams, errors, cancelling."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import pumice
from imported_late import Late
from server_thread import running
from waiting import at_best, wait_until

openai = Late("openai")

PROMPT = "Once upon a time"
CHAT = [{"role": "user", "content": PROMPT}]
GREEDY = {"temperature": 0, "max_tokens": 12}


@pytest.mark.parametrize("stream", [False, True])
def test_several_answers(client, stream):
    options = {"model": "demo", "messages": CHAT, "max_tokens": 8, "temperature": 2.0}
    made = client.chat.completions.create(**options, n=3, seed=1, stream=stream)
    if stream:
        texts = ["", "", ""]
        for chunk in made:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    else:
        texts = [choice.message.content for choice in made.choices]
        assert made.usage.completion_tokens == 24
    alone = client.chat.completions.create(**options, seed=2)
    assert len(set(texts)) == 3
    assert texts[1] == alone.choices[0].message.content


def test_log_probabilities_of_a_chat(client, server):
    options = {"model": "demo", "messages": CHAT, **GREEDY, "logprobs": True, "top_logprobs": 3}
    answer = client.chat.completions.create(**options)
    expected = server.model.chat(CHAT, temperature=0, max_tokens=12, logprobs=3)
    content = answer.choices[0].logprobs.content
    assert [entry.logprob for entry in content] == pytest.approx([each.logprob for each in expected.logprobs])
    assert all(len(entry.top_logprobs) == 3 for entry in content)
    spelt = bytes(byte for entry in content for byte in entry.bytes).decode()
    assert spelt == "".join(entry.token for entry in content) == answer.choices[0].message.content
    chunks = client.chat.completions.create(**options, stream=True)
    parts = [choice.logprobs for chunk in chunks for choice in chunk.choices if choice.logprobs]
    assert [entry.token for part in parts for entry in part.content] == [entry.token for entry in content]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_logprobs": 2}, "top_logprobs needs logprobs"),
        ({"logit_bias": {"99999999": 1}}, "not in the vocabulary"),
        ({"response_format": {"type": "fancy"}}, "response_format"),
        ({"messages": []}, "messages must be a list of 1 to"),
        ({"messages": [{"role": "user", "content": 5}]}, r"messages\[0\].content: expected text or a list"),
        ({"extra_body": {"grammar": "root ::= x"}}, "grammar"),
        ({"extra_body": {"lora": [{"id": 0}]}}, "lora: this model has no LoRA adapters"),
    ],
)
def test_wrong_requests_are_told(client, options, message):
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        client.chat.completions.create(**{"model": "demo", "messages": CHAT, **options})
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


def test_requests_of_several_clients_are_computed_together():
    body = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True}
    with pumice.load(n_ctx=2048, n_parallel=4) as model, running(model) as server:  # all four fit the cache

        def steps(n_clients: int) -> int:
            before = model.engine.snapshot().n_steps
            with ThreadPoolExecutor(n_clients) as clients:
                asked = [clients.submit(server.client.post, "/v1/completions", json=body) for _ in range(n_clients)]
            assert {each.result().json()["usage"]["completion_tokens"] for each in asked} == {400}
            return model.engine.snapshot().n_steps - before

        assert at_best(lambda: steps(4) / steps(1), 2.0) < 2.0


def test_a_client_that_leaves_before_the_answer_ends_its_generation(model):
    """Four completions run, and twelve wait."""
    options = {"max_tokens": -1, "n": 16, "extra_body": {"ignore_eos": True}}
    with running(model, context_shift=True) as server:
        hasty = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=0.5)
        with hasty, pytest.raises(openai.APITimeoutError):
            hasty.completions.create(model="demo", prompt=PROMPT, **options)
        wait_until(lambda: model.engine.snapshot().n_running == model.engine.snapshot().n_waiting == 0)
