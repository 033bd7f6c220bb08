"""Embeddings and ranking, by the official clients and as llama-server, Jina and TEI have them."""

from types import SimpleNamespace

import numpy as np
import ollama
import pytest

from server_thread import running

TEXTS = ["Once upon a time", "The cat sat"]


@pytest.fixture(scope="module")
def expected(server):
    return server.model.embed(TEXTS)


def test_openais_client(server, client, expected):
    """It asks for base64 if not told otherwise."""
    for form in ({}, {"encoding_format": "float"}):
        found = client.embeddings.create(model="demo", input=TEXTS, **form)
        np.testing.assert_allclose([each.embedding for each in found.data], expected, rtol=1e-5, atol=1e-6)
    assert found.usage.prompt_tokens == sum(len(server.model.tokenizer.tokenize(text)) for text in TEXTS)
    one = client.embeddings.create(model="demo", input=server.model.tokenizer.tokenize(TEXTS[1]), dimensions=8)
    np.testing.assert_allclose(one.data[0].embedding, server.model.embed(TEXTS[1], dimensions=8)[0], rtol=1e-4)


def test_ollamas_client(server, expected):
    client = ollama.Client(host=server.url)
    found = client.embed(model="demo", input=TEXTS)
    np.testing.assert_allclose(found.embeddings, expected, rtol=1e-5, atol=1e-6)
    raw = server.model.embed(TEXTS[0], normalize=False)[0]
    np.testing.assert_allclose(client.embeddings(model="demo", prompt=TEXTS[0]).embedding, raw, rtol=1e-4, atol=1e-5)
    assert client.embed(model="demo", input=[]).embeddings == []
    long = "word and " * 1000
    assert len(client.embed(model="demo", input=long).embeddings) == 1
    with pytest.raises(ollama.ResponseError, match="tokens, n_ctx is 512"):
        client.embed(model="demo", input=long, truncate=False)
    for path in ("/v1/embeddings", "/embeddings"):
        answers = [server.client.post(path, json={"input": long, **more}) for more in ({}, {"truncate": True})]
        assert [answer.status_code for answer in answers] == [400, 200], answers[0].text


@pytest.mark.parametrize(("norm", "size"), [(2, 1.0), (1, 1.0), (0, 32760.0), (-1, None)])
def test_llama_servers_norms(server, norm, size):
    told = server.client.post("/embeddings", json={"content": TEXTS[0], "embd_normalize": norm}).json()
    assert told[0]["index"] == 0
    vector = np.array(told[0]["embedding"][0])
    raw = server.model.embed(TEXTS[0], normalize=False)[0]
    measure = np.abs(vector).max() if norm == 0 else np.linalg.norm(vector, max(norm, 1))
    assert measure == pytest.approx(np.linalg.norm(raw, 1) if size is None else size, rel=1e-3)
    assert np.dot(vector, raw) == pytest.approx(np.linalg.norm(vector) * np.linalg.norm(raw), rel=1e-3)


class Ranking:
    """A model that finds long documents good."""

    def __init__(self, model) -> None:
        self._model = model
        self.facts = SimpleNamespace(**{**vars(model.facts), "n_labels": 1})

    def __getattr__(self, name):
        return getattr(self._model, name)

    async def arerank(self, query, documents, adapters, **options):
        return [float(len(document)) for document in documents]


def test_ranking(model):
    documents = ["a", "abc", "ab"]
    with running(Ranking(model)) as server:
        told = server.client.post("/v1/rerank", json={"query": "x", "documents": documents, "top_n": 2}).json()
        assert told["results"] == [{"index": 1, "relevance_score": 3.0}, {"index": 2, "relevance_score": 2.0}]
        assert told["usage"]["prompt_tokens"] > 0
        tei = server.client.post("/rerank", json={"query": "x", "texts": documents, "return_text": True}).json()
        assert tei[0] == {"index": 1, "score": 3.0, "text": "abc"}
        long = {"query": "x", "documents": ["word and " * 100_000]}
        assert server.client.post("/v1/rerank", json=long).status_code == 400
        cut = server.client.post("/v1/rerank", json={**long, "truncate": True}).json()
        assert cut["usage"]["prompt_tokens"] == model.n_ctx


def test_hidden_states_are_those_of_the_library(server):
    layers = [0, "1.ffn", "embeddings"]
    with running(server.model, hidden_states=True) as allowed:

        def ask(**body):
            return allowed.client.post("/hidden-states", json={"input": TEXTS, "layers": layers, **body})

        states = server.model.hidden(TEXTS, layers=layers)
        for answer, expected in zip(ask().json()["data"], states, strict=True):
            assert list(answer["layers"]) == ["0", "1.ffn", "embeddings"]
            for layer in layers:
                np.testing.assert_allclose(answer["layers"][str(layer)], expected[layer], rtol=1e-3, atol=1e-4)
        assert len(ask(input=server.model.tokenizer.tokenize(TEXTS[0])).json()["data"]) == 1
        for body, message in (
            ({"layers": [9]}, "the model has no layer 9"),
            ({"layers": []}, "layers"),
            ({"layers": ["0"] * 2000}, "at most 1024"),
            ({"input": "word and " * 400}, "n_ctx is 512"),
            ({"input": ["a b c d " * 60] * 100, "layers": layers * 20}, "values are too many"),
        ):
            response = ask(**body)
            assert (response.status_code, message in response.text) == (400, True), response.text
    assert server.client.post("/hidden-states", json={"input": "a", "layers": [0]}).status_code == 501
