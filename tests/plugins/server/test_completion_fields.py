"""Fields of completions that OpenAI, llama-server and vLLM have."""

import json

import pytest

PROMPT = "Once upon a time"
GREEDY = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8}


def complete(server, path: str = "/v1/completions", **body):
    response = server.client.post(path, json=GREEDY | body)
    assert response.status_code == 200, response.text
    return response.json()


def texts(server, **body) -> list[str]:
    return [choice["text"] for choice in complete(server, **body)["choices"]]


def test_log_probabilities_by_llama_servers_name(server):
    def told(path: str, **body) -> dict:
        body |= {"temperature": 0, "max_tokens": 4}
        (choice,) = server.client.post(path, json=body).json()["choices"]
        return choice["logprobs"]

    chat = {"path": "/v1/chat/completions", "messages": [{"role": "user", "content": PROMPT}]}
    assert told(**chat, n_probs=2) == told(**chat, logprobs=True, top_logprobs=2)
    plain = {"path": "/v1/completions", "prompt": PROMPT}
    assert told(**plain, n_probs=2) == told(**plain, logprobs=2)
    assert told(**chat, n_probs=0) is told(**plain, n_probs=0) is None


def test_the_prompt_is_repeated(server):
    ids = server.model.tokenizer.tokenize(PROMPT)
    (plain,) = texts(server)
    assert texts(server, echo=True) == [PROMPT + plain]
    assert texts(server, echo=True, prompt=[PROMPT, ids], n=2) == [PROMPT + plain] * 4
    assert texts(server, echo=True, max_tokens=0) == [PROMPT]
    streamed = server.client.post("/v1/completions", json=GREEDY | {"echo": True, "stream": True}).text
    assert streamed.index('"text":"Once upon a time"') < streamed.index('"finish_reason":"length"')


def test_log_probabilities_of_a_repeated_prompt(server):
    """A given text has the log-probabilities that it had when it was generated."""
    (written,) = complete(server, logprobs=2)["choices"]
    ids = [*server.model.tokenizer.tokenize(PROMPT), *server.model.generate(PROMPT, temperature=0, max_tokens=8).tokens]
    (given,) = complete(server, prompt=ids, echo=True, logprobs=2, max_tokens=0)["choices"]
    assert given["text"] == PROMPT + written["text"]
    found, expected = given["logprobs"], written["logprobs"]
    assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
    assert found["tokens"][-8:] == expected["tokens"]
    assert found["token_logprobs"][-8:] == pytest.approx(expected["token_logprobs"], abs=0.02)
    spelt = zip(found["text_offset"], found["tokens"], strict=True)
    assert all(given["text"][offset:].startswith(token) for offset, token in list(spelt)[1:])
    whole = complete(server, prompt=ids, echo=True, logprobs=0, max_tokens=2)["choices"][0]["logprobs"]
    assert len(whole["tokens"]) == len(whole["text_offset"]) == len(ids) + 2
    lines = server.client.post("/v1/completions", json=GREEDY | {"echo": True, "stream": True, "logprobs": 0}).text
    parts = [json.loads(line[6:]) for line in lines.splitlines() if line.startswith("data: {")]
    offsets = [each for part in parts for each in (part["choices"][0]["logprobs"] or {}).get("text_offset", [])]
    assert offsets == found["text_offset"]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_the_end_token_has_an_entry_without_text(server, echo, stream):
    """As in vLLM's answers: lm-eval takes the last entry for the generated token, whatever that is."""
    tokenizer = server.model.tokenizer
    end, ids = min(tokenizer.eog), tokenizer.tokenize(PROMPT)
    body = GREEDY | {"logit_bias": {str(end): 100}, "logprobs": 1, "echo": echo, "stream": stream}
    response = server.client.post("/v1/completions", json=body)
    lines = response.text.splitlines() if stream else [f"data: {response.text}"]
    choices = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    assert "".join(choice["text"] for choice in choices) == PROMPT * echo
    assert choices[-1]["finish_reason"] == "stop"
    assert sum(len(choice["logprobs"]["tokens"]) for choice in choices if choice["logprobs"]) == 1 + len(ids) * echo
    entry = {name: values[-1] for name, values in choices[-1]["logprobs"].items()}
    (_, *scores) = server.model.score([*ids, end])
    assert entry["tokens"] == tokenizer.token_bytes(end, special=True).decode()
    assert entry["token_logprobs"] == pytest.approx(scores[-1].logprob, abs=0.02)
    assert entry["text_offset"] == len(PROMPT) * echo


def test_log_probabilities_of_prompts_as_vllm_tells_them(server):
    first, *others = complete(server, prompt_logprobs=2, max_tokens=1)["choices"][0]["prompt_logprobs"]
    assert first is None
    for token, told in zip(server.model.tokenizer.tokenize(PROMPT)[1:], others, strict=True):
        assert len(told) in (2, 3)
        assert told[str(token)]["decoded_token"]
        assert {1, 2} <= {each["rank"] for each in told.values()}


def test_structured_output_by_other_names(server):
    for fields in (
        *({name: "yes|no"} for name in ("regex", "guided_regex")),
        *({name: ["yes", "no"]} for name in ("choices", "guided_choice")),
        *({"structured_outputs": form} for form in ({"choice": ["yes", "no"]}, {"grammar": 'root ::= "yes" | "no"'})),
    ):
        assert texts(server, **fields)[0] in ("yes", "no"), fields


TEXT = "a中🎉é🧑‍🚀 b"


def whole_characters(data: bytes) -> int:
    return len(data.decode("utf-8", "ignore"))


def test_tokens_that_are_parts_of_characters_keep_their_values_and_offsets(server):
    """Spelt as OpenAI does: every alternative has a key, and offsets count the characters before a token."""
    tokenizer = server.model.tokenizer
    ids = tokenizer.tokenize(TEXT)
    (choice,) = complete(server, prompt=TEXT, echo=True, logprobs=5, max_tokens=0)["choices"]
    found = choice["logprobs"]
    read, partial = b"", 0
    for token, name, offset, top in zip(ids, found["tokens"], found["text_offset"], found["top_logprobs"], strict=True):
        data = tokenizer.token_bytes(token, special=True)
        assert name.encode() == data or name == "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
        partial += name.startswith("bytes:")
        assert offset == whole_characters(read)
        read += tokenizer.token_bytes(token)
        assert top is None or len(top) == 5
    assert partial > 4
    assert choice["text"] == TEXT


def test_streams_have_the_log_probabilities_of_the_whole_answer(server):
    """Also where a chunk ends inside of a character, which the bias makes certain."""
    ids = [token for token in server.model.tokenizer.tokenize(TEXT) if server.model.tokenizer.token_bytes(token)]
    sampled = {"logit_bias": {str(token): 100 for token in ids}, "temperature": 1.0, "seed": 3, "max_tokens": 24}

    def streamed(**options):
        (choice,) = complete(server, logprobs=3, **options)["choices"]
        lines = server.client.post("/v1/completions", json={**GREEDY, **options, "logprobs": 3, "stream": True}).text
        parts = [json.loads(line[6:])["choices"] for line in lines.splitlines() if line.startswith("data: {")]
        lists = [part[0]["logprobs"] for part in parts if part]
        return choice, {name: [value for part in lists for value in part[name]] for name in choice["logprobs"]}

    choice, nothing = streamed(max_tokens=0)
    assert choice["logprobs"] == nothing
    choice, whole = streamed(**sampled)
    assert whole["tokens"] == choice["logprobs"]["tokens"]
    assert whole["text_offset"] == choice["logprobs"]["text_offset"]
    assert any(name.startswith("bytes:") for name in whole["tokens"])
    for name, value, top in zip(whole["tokens"], whole["token_logprobs"], whole["top_logprobs"], strict=True):
        assert top.get(name, value) == value
