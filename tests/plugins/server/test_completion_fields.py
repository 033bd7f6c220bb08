"""Fields of completions that OpenAI, llama-server and vLLM have."""

import json
import re

import pytest

from pumice.engine import EngineClient, Timings
from pumice_server import openai_completions
from pumice_server.figures import predicted
from server_thread import running

PROMPT = "Once upon a time"
GREEDY = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8}


def complete(server, path: str = "/v1/completions", **body):
    response = server.client.post(path, json=GREEDY | body)
    assert response.status_code == 200, response.text
    return response.json()


def texts(server, **body) -> list[str]:
    return [choice["text"] for choice in complete(server, **body)["choices"]]


def test_integers_that_are_written_as_floats(server):
    """As some languages' clients write all numbers."""
    body = {"temperature": 1.0, "top_k": 40.0, "seed": 7.0}
    assert texts(server, **body, max_tokens=8.0) == texts(server, temperature=1, top_k=40, seed=7, max_tokens=8)
    assert server.client.post("/v1/completions", json=GREEDY | {"top_k": 40.5}).status_code == 400


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


def test_an_empty_grammar_is_none(server):
    assert texts(server, grammar="", json_schema="") == texts(server)


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


def test_log_probabilities_of_prompts_as_vllm_tells_them(server):
    first, *others = complete(server, prompt_logprobs=2, max_tokens=1)["choices"][0]["prompt_logprobs"]
    assert first is None
    for token, told in zip(server.model.tokenizer.tokenize(PROMPT)[1:], others, strict=True):
        assert len(told) in (2, 3)
        assert told[str(token)]["decoded_token"]
        assert {1, 2} <= {each["rank"] for each in told.values()}


def test_the_likeliest_of_several(server):
    """Completions with the highest mean log-probability per token are returned."""
    sampled = {"temperature": 1.5, "seed": 1, "logprobs": 0}
    all_of_them = complete(server, n=6, **sampled)["choices"]

    def likelihood(choice) -> float:
        found = choice["logprobs"]["token_logprobs"]
        return sum(found) / len(found)

    best = sorted(all_of_them, key=likelihood, reverse=True)[:2]
    told = complete(server, n=2, best_of=6, **sampled)
    assert [choice["text"] for choice in told["choices"]] == [choice["text"] for choice in best]
    assert [choice["index"] for choice in told["choices"]] == [0, 1]
    assert told["usage"]["completion_tokens"] == 48
    assert complete(server, best_of=3, temperature=1.5)["choices"][0]["logprobs"] is None


def test_priorities_are_those_of_vllm(server, monkeypatch):
    """There the lowest comes first, here the highest."""
    seen, add = [], EngineClient.add
    monkeypatch.setattr(
        EngineClient, "add", lambda self, request, *rest: seen.append(request) or add(self, request, *rest)
    )
    complete(server, priority=-3)
    complete(server, "/completion", priority=2)
    complete(server)
    assert [request.priority for request in seen] == [3, -2, 0]


def test_a_request_chooses_its_drafts(server, monkeypatch):
    seen, add = [], EngineClient.add
    monkeypatch.setattr(
        EngineClient, "add", lambda self, request, *rest: seen.append(request) or add(self, request, *rest)
    )
    expected = texts(server)
    assert texts(server, speculate="ngram", n_draft=3) == expected
    assert complete(server, "/completion", **{"speculative.n_max": 0})["content"] == expected[0]
    server.client.post("/api/generate", json={"prompt": PROMPT, "options": {"draft_num_predict": 2, "num_predict": 1}})
    assert [texts(server, speculate=value) for value in (False, True)] == [expected, expected]
    chosen = [(None, None), ("ngram", 3), (None, 0), (None, 2), ("off", None), ("auto", None)]
    assert [(request.speculate, request.n_draft) for request in seen] == chosen
    response = server.client.post("/v1/completions", json=GREEDY | {"speculate": "ngran"})
    assert response.status_code == 400
    assert "did you mean 'ngram'" in response.text


def test_predicted_tokens_are_counted(server):
    """Only drafted tokens are counted; without a prediction there are no such counts."""
    chat = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 30, "n_draft": 5}
    prediction = {"type": "content", "content": PROMPT}

    def details(stream: bool, **more) -> dict:
        body = chat | more | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {})
        text = server.client.post("/v1/chat/completions", json=body).text
        last = json.loads(text.split("data: ")[-2] if stream else text)
        return last["usage"]["completion_tokens_details"]

    for stream in (False, True):
        assert details(stream).keys() == {"reasoning_tokens"}
        counts = details(stream, prediction=prediction)
        assert counts.keys() == {"reasoning_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens"}
        none = details(stream, prediction=prediction, n_draft=0)
        assert (none["accepted_prediction_tokens"], none["rejected_prediction_tokens"]) == (0, 0)
    timings = Timings()
    timings.drafted(5, 3, is_predicted=True)
    timings.drafted(8, 6)
    timings.drafted(4, 4, is_predicted=True)
    assert predicted([timings]) == {"accepted_prediction_tokens": 7, "rejected_prediction_tokens": 2}


def test_a_text_between_two(server, monkeypatch):
    seen = []

    def fill_in(service, prefix, suffix):
        seen.append((prefix, suffix))
        return server.model.tokenizer.tokenize(PROMPT)

    monkeypatch.setattr(openai_completions, "fill_in", fill_in)
    assert texts(server, suffix=" the end.", prompt="Some") == texts(server)
    assert seen == [("Some", " the end.")]


def test_the_end_of_a_line_after_a_time(server):
    options = {"logit_bias": {"\n": 5}, "ignore_eos": True, "n_predict": 200, "seed": 1, "temperature": 1}
    told = complete(server, "/completion", t_max_predict_ms=1, **options)
    assert told["stop_type"] == "limit"
    assert told["tokens_predicted"] < 200
    assert "\n" in told["content"]
    assert complete(server, "/completion", t_max_predict_ms=-1, **options)["tokens_predicted"] == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "yes|no"},
        {"choices": ["yes", "no"]},
        {"guided_choice": ["yes", "no"]},
        {"guided_regex": "yes|no"},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}},
    ],
    ids=str,
)
def test_structured_output_by_other_names(server, fields):
    assert texts(server, **fields)[0] in ("yes", "no")


def test_tokens_that_end_a_text(server):
    tokens = server.model.generate(PROMPT, temperature=0, max_tokens=8).tokens
    assert complete(server, stop_token_ids=[tokens[3]])["usage"]["completion_tokens"] <= 4


def test_a_minimum_of_tokens(server):
    tokens = server.model.generate(PROMPT, temperature=0, max_tokens=8).tokens
    longer = complete(server, stop_token_ids=[tokens[3]], min_tokens=6)
    assert longer["usage"]["completion_tokens"] >= 6


def test_a_grammar_that_a_text_begins(server):
    """llama-server's fields; without ``grammar_lazy`` the grammar begins at once, whatever the triggers."""
    triggers = [{"type": 1, "value": "zebra"}, {"type": 0, "value": " was", "token": 5}, "ostrich"]
    fields = {"grammar": 'root ::= (" was" | " a") "!"', "grammar_triggers": triggers, "max_tokens": 40}
    assert texts(server, **fields)[0] in (" was!", " a!")
    assert re.fullmatch(r"(?s).+ was!", texts(server, **fields, grammar_lazy=True)[0])


def test_adaptive_p(server):
    """Also by its name in the list, as llama-server has it; there it is off if the list lacks it."""
    options = {"seed": 1, "rng": "mt19937", "temperature": 1, "max_tokens": 30}
    plain, adapted = (texts(server, **options, adaptive_target=target)[0] for target in (-1, 0.1))
    assert plain != adapted
    named = {"samplers": ["adaptive_p", "top_k", "typ_p", "top_p", "min_p", "temperature"]}
    assert texts(server, **options, adaptive_target=0.1, **named)[0] == adapted
    assert texts(server, **options, adaptive_target=-1, **named)[0] == plain


def test_reasoning_in_the_content(server):
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "reasoning_format": "none"}
    assert server.client.post("/v1/chat/completions", json=body).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"best_of": 2, "stream": True}, 400, "best_of needs all of the completions"),
        ({"best_of": 1, "n": 2}, 400, "Field 'best_of': Value must be between 2"),
        ({"suffix": "x"}, 501, "cannot fill in text"),
        ({"grammar_lazy": True, "regex": "a"}, 400, "grammar_triggers: expected 1 to 16 texts, not 0"),
        ({"grammar_lazy": True, "regex": "a", "grammar_triggers": [{"type": 2, "value": "x"}]}, 400, "patterns"),
        ({"adaptive_target": 1.5}, 400, "Field 'adaptive_target': Value must be between"),
        ({"min_tokens": 500}, 400, "min_tokens: 500 is above max_tokens"),
        ({"prompt_logprobs": 21}, 400, "Field 'prompt_logprobs': Value must be between 0"),
        ({"prompt_logprobs": 1, "stream": True}, 400, "leave out stream"),
        ({"t_max_predict_ms": "soon"}, 400, "t_max_predict_ms must be an integer"),
        ({"choices": "yes"}, 400, "choices"),
        ({"structured_outputs": []}, 400, "structured_outputs must be an object"),
        ({"priority": "high"}, 400, "priority"),
        ({"stop_token_ids": ["x"]}, 400, "stop_token_ids[0] must be an integer"),
    ],
    ids=str,
)
def test_refused_fields(server, fields, status, message):
    response = server.client.post("/v1/completions", json=GREEDY | fields)
    assert response.status_code == status
    assert message in response.json()["error"]["message"]


ASKED = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
RESPOND = {"input": "Hello", "max_output_tokens": 1}
GENERATES = {"/v1/chat/completions": ASKED, "/v1/messages": ASKED, "/v1/responses": RESPOND, "/completion": GREEDY}
GENERATES |= {"/api/generate": {"prompt": "Hello", "stream": False}}
RENDERS = {"/apply-template": ASKED, "/v1/messages/count_tokens": ASKED, "/v1/responses/input_tokens": RESPOND}
RENDERS |= {"/v1/chat/completions/input_tokens": ASKED}
UNSUPPORTED = {"image_data": [1]}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_fields_are_refused_by_generation_alone(server, name):
    field = {name: UNSUPPORTED[name]}
    for path, body in GENERATES.items():
        fields = {"options": field} if path.startswith("/api") else field
        answer = server.client.post(path, json=body | fields)
        assert (answer.status_code, f"{name} is not supported: " in answer.text) == (400, True), path
    for path, body in RENDERS.items():
        assert server.client.post(path, json=body | field).json() == server.client.post(path, json=body).json(), path


def test_fields_that_would_change_a_counted_prompt_are_refused(server):
    answer = server.client.post("/v1/responses/input_tokens", json=RESPOND | {"conversation": "x"})
    assert (answer.status_code, "conversation is not supported: " in answer.text) == (400, True)


def test_an_unknown_format_of_reasoning(server):
    body = {"messages": [{"role": "user", "content": "Hello"}], "reasoning_format": "deepseek-legacy"}
    response = server.client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert "reasoning_format must be one of auto, deepseek, none" in response.json()["error"]["message"]


def test_texts_that_end_an_answer_by_default(model):
    body = {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0, "ignore_eos": True}
    with running(model, stop=["e"]) as server:
        for fields, stops in (({}, True), ({"stop": []}, True), ({"stop": ["no such text"]}, False)):
            text = server.client.post("/v1/completions", json=body | fields).json()["choices"][0]["text"]
            assert ("e" not in text) is stops


TEXT = "a中🎉é🧑‍🚀 b"


def whole_characters(data: bytes) -> int:
    return len(data.decode("utf-8", "ignore"))


def test_tokens_that_are_parts_of_characters_keep_their_values_and_offsets(server):
    """Spelt as OpenAI does: every alternative has a key, and offsets count the characters before a token."""
    tokenizer = server.model.tokenizer
    ids = server.model.tokenizer.tokenize(TEXT)
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
    (choice,) = complete(server, logprobs=3, **sampled)["choices"]
    lines = server.client.post("/v1/completions", json={**GREEDY, **sampled, "logprobs": 3, "stream": True}).text
    parts = [json.loads(line[6:])["choices"] for line in lines.splitlines() if line.startswith("data: {")]
    lists = [part[0]["logprobs"] for part in parts if part and part[0]["logprobs"]]
    whole = {name: [value for part in lists for value in part[name]] for name in choice["logprobs"]}
    assert whole["tokens"] == choice["logprobs"]["tokens"]
    assert whole["text_offset"] == choice["logprobs"]["text_offset"]
    assert any(name.startswith("bytes:") for name in whole["tokens"])
    for name, value, top in zip(whole["tokens"], whole["token_logprobs"], whole["top_logprobs"], strict=True):
        assert top.get(name, value) == value
