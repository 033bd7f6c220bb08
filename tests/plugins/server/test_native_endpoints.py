"""llama-server's own endpoints."""

import gzip
import json

import pytest

import pumice
from gguf_files import tiny_llama
from server_thread import running

PROMPT = "Once upon a time"
GREEDY = {"prompt": PROMPT, "temperature": 0, "n_predict": 12}


def post(server, path: str, **body):
    response = server.client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events(server, **body) -> list[dict]:
    with server.client.stream("POST", "/completion", json={**body, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line]


@pytest.fixture(scope="module")
def expected(server):
    return server.model.generate(PROMPT, temperature=0, max_tokens=12, logprobs=2)


def test_a_completion(server, expected):
    told = post(server, "/completion", **GREEDY, return_tokens=True, n_probs=2)
    assert (told["content"], told["tokens"]) == (expected.text, expected.tokens)
    assert (told["stop"], told["stop_type"]) == (True, "limit")
    assert told["tokens_predicted"] == told["timings"]["predicted_n"] == 12
    assert told["tokens_evaluated"] == expected.timings.prompt_tokens
    assert told["generation_settings"]["temperature"] == 0
    found = [entry["logprob"] for entry in told["completion_probabilities"]]
    assert found == pytest.approx([each.logprob for each in expected.logprobs])


def test_probabilities_of_the_candidates_that_were_left(server):
    told = post(server, "/completion", **GREEDY | {"temperature": 1, "top_k": 3}, n_probs=3, post_sampling_probs=True)
    for entry in told["completion_probabilities"]:
        assert set(entry) == {"id", "token", "bytes", "prob", "top_probs"}
        assert sum(other["prob"] for other in entry["top_probs"]) == pytest.approx(1)
        assert entry["prob"] in [other["prob"] for other in entry["top_probs"] if other["id"] == entry["id"]]


def test_a_streamed_completion(server, expected):
    told = events(server, **GREEDY)
    assert "".join(each["content"] for each in told) == expected.text
    assert [token for each in told for token in each["tokens"]] == expected.tokens
    assert [each["stop"] for each in told] == [False] * (len(told) - 1) + [True]
    assert told[-1]["tokens_predicted"] == 12


def test_prompts_of_every_form(server, expected):
    ids = server.model.tokenizer.tokenize(PROMPT)
    rest = GREEDY | {"prompt": None}
    assert post(server, "/completion", **rest | {"prompt": ids})["content"] == expected.text
    mixed = [ids[0], *ids[1:-1], server.model.tokenizer.detokenize(ids[-1:])]
    assert post(server, "/completion", **rest | {"prompt": mixed})["tokens_evaluated"] == len(ids)
    each = [mixed, {"prompt_string": PROMPT}, ids, PROMPT]
    told = post(server, "/completion", **rest | {"prompt": each})
    assert [one["tokens_evaluated"] for one in told] == [len(ids)] * 4
    assert {one["content"] for one in told[1:]} == {expected.text}
    several = post(server, "/completion", **rest | {"prompt": [PROMPT, "The cat"]}, n_cmpl=2)
    assert [each["index"] for each in several] == [0, 1, 2, 3]
    assert [each["content"] == expected.text for each in several] == [True, True, False, False]


def test_tokenize_and_detokenize(server):
    text = "Héllo, wörld 🙂"
    tokens = post(server, "/tokenize", content=text)["tokens"]
    assert tokens == server.model.tokenizer.tokenize(text, add_special=False)
    assert post(server, "/detokenize", tokens=tokens)["content"] == text
    pieces = post(server, "/tokenize", content=text, with_pieces=True, add_special=True)["tokens"]
    spelt = [each["piece"].encode() if isinstance(each["piece"], str) else bytes(each["piece"]) for each in pieces]
    assert b"".join(spelt).endswith(text.encode())
    tokens = [*range(3), *server.model.tokenizer.tokenize("The fox", add_special=False)]  # llama-server spells all
    text = post(server, "/detokenize", tokens=tokens)["content"]
    assert text == server.model.tokenizer.detokenize(tokens, special=True)
    assert text.startswith("<|story|><|end|>")
    assert post(server, "/tokenize", content=text, add_special=False, parse_special=True)["tokens"] == tokens


def test_templates(server):
    messages = [{"role": "user", "content": PROMPT}]
    assert post(server, "/apply-template", messages=messages)["prompt"] == server.model.template.apply(messages)


def test_props_and_slots(server):
    props = server.client.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 512
    assert props["total_slots"] == 4
    assert "/" not in props["model_path"]
    (place,) = props["placement"]
    assert (place["name"], place["is_gpu"], place["layers"]) == (server.model.backends[0], False, list(range(7)))
    assert place["bytes"] == sum(place["parts"].values())
    slots = server.client.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert not any(slot["is_processing"] for slot in slots)


def test_metrics(server):
    def value(name: str) -> float:
        text = server.client.get("/metrics").text
        return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name)))

    before = value("pumice_generated_tokens_total")
    post(server, "/completion", **GREEDY)
    events(server, **GREEDY)
    assert value("pumice_generated_tokens_total") == before + 24
    assert value("pumice_time_to_first_token_seconds_count") > 0
    assert value("pumice_engine_slots{") == 4
    assert value('pumice_requests_total{endpoint="completion",status="200"}') >= 2


def test_a_chain_of_samplers(server):
    """top_k alone, with 1, is greedy; what the chain does not have is not looked at."""
    greedy = post(server, "/completion", **GREEDY)["content"]
    body = {"prompt": PROMPT, "n_predict": 12, "temperature": 5.0, "top_k": 1}
    assert post(server, "/completion", **body, samplers=["top_k"])["content"] == greedy
    assert post(server, "/completion", **body, samplers="k")["content"] == greedy
    body["samplers"] = ["temperature"]
    assert len({post(server, "/completion", **body, seed=seed)["content"] for seed in range(3)}) == 3


def test_a_model_without_a_tokenizer_takes_and_gives_token_ids(tmp_path):
    path = tiny_llama(tmp_path / "ids.gguf", tokenizer=False)
    body = {"prompt": [1, 2, 3], "n_predict": 3, "temperature": 0, "ignore_eos": False, "return_tokens": True}
    with pumice.load(path, backend="numpy") as model, running(model) as server:
        expected = model.generate([1, 2, 3], max_tokens=3, temperature=0).tokens
        answer = post(server, "/completion", **body)
        assert (answer["tokens"], answer["content"], answer["prompt"]) == (expected, "", "")
        *_, last = events(server, **body)
        assert last["stop"] is True
        refused = server.client.post("/completion", json={**body, "prompt": "Hello"})
        assert refused.status_code == 501
        assert "pass token ids instead of text" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1/chat/completions/input_tokens"]
)
def test_counts_are_those_of_the_chat(server, path):
    """A user's text that spells special tokens is text."""
    messages = [{"role": "user", "content": "<|end|>\n<|story|>" * 9}]
    body = {"model": "demo", "messages": messages, "max_tokens": 1}
    read = server.client.post("/v1/chat/completions", json=body).json()["usage"]["prompt_tokens"]
    given = {"input": messages} if "responses" in path else {"messages": messages}
    assert server.client.post(path, json=given).json()["input_tokens"] == read


@pytest.mark.parametrize("headers", [{"Content-Encoding": "gzip"}, {}])
def test_a_compressed_body_is_named(server, headers):
    response = server.client.post("/v1/completions", content=gzip.compress(b'{"prompt": "a"}'), headers=headers)
    assert response.status_code in (400, 415)
    assert "compressed (gzip)" in response.json()["error"]["message"]


def test_an_empty_text_has_no_embedding_for_ollama(server):
    assert server.client.post("/api/embed", json={"model": "demo", "input": ""}).json()["embeddings"] == []
    assert server.client.post("/api/embeddings", json={"model": "demo", "prompt": ""}).json() == {"embedding": []}
