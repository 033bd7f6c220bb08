"""Requests and tokens per minute, for each client."""

import asyncio

import httpx2
import pytest
from starlette.exceptions import HTTPException

from imported_late import Late
from pumice_server.http.gate import CLIENT_HEADER, Inside
from pumice_server.http.rates import RateLimits
from pumice_server.keys import digest
from pumice_server.settings import Settings
from server_thread import running

openai = Late("openai")

COMPLETE = {"prompt": "Once", "max_tokens": 8, "ignore_eos": True}


def test_requests_come_back_evenly():
    now = 0.0
    rates = RateLimits(60, 0, lambda: now)
    for _ in range(60):
        rates.begin("a")
    with pytest.raises(HTTPException, match="more than 60 requests per minute: try again in 1 s") as caught:
        rates.begin("a")
    assert caught.value.headers["Retry-After"] == "1"
    rates.begin("b")
    now = 2.5
    for _ in range(2):
        rates.begin("a")
    with pytest.raises(HTTPException):
        rates.begin("a")
    now = 1e6
    assert rates.headers("a")["x-ratelimit-remaining-requests"] == "60"


@pytest.mark.parametrize(("key", "status"), [("revoked", 401), ("a", 429)])
def test_a_refused_row_of_a_batch_has_a_request_id(key, status):
    client, rates = digest(key).hex(), RateLimits(1, 0)
    rates.begin(client)
    transport = httpx2.ASGITransport(Inside(None, Settings(keys=["a"]), rates))

    async def ask() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=transport, headers={CLIENT_HEADER: client}) as asking:
            return await asking.post("http://localhost/v1/completions")

    response = asyncio.run(ask())
    assert response.status_code == status
    assert response.headers["X-Request-Id"]


def test_tokens_are_owed():
    now = 0.0
    rates = RateLimits(0, 600, lambda: now)
    rates.begin("a")
    rates.end("a", 900)
    assert rates.headers("a")["x-ratelimit-remaining-tokens"] == "0"
    with pytest.raises(HTTPException, match="more than 600 tokens per minute: try again in 31 s"):
        rates.begin("a")
    now = 31.0
    rates.begin("a")


def test_clients_are_told(model):
    with running(model, keys=["one", "two"], max_requests=2, max_tokens_per_minute=1000) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="one", max_retries=0)
        raw = client.completions.with_raw_response.create(model="demo", prompt="Once", max_tokens=8)
        assert [raw.headers[f"x-ratelimit-{name}-requests"] for name in ("limit", "remaining")] == ["2", "1"]
        client.completions.create(model="demo", prompt="Once", max_tokens=8)
        with pytest.raises(openai.RateLimitError, match="more than 2 requests per minute") as caught:
            client.completions.create(model="demo", prompt="Once", max_tokens=8)
        assert 1 <= int(caught.value.response.headers["Retry-After"]) <= 30
        other = {"X-Api-Key": "two"}
        assert server.client.post("/v1/completions", json=COMPLETE, headers=other).status_code == 200
        assert server.client.get("/v1/models", headers={"X-Api-Key": "one"}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
def test_tokens_are_counted_where_answers_end(model, path):
    body = COMPLETE | {"input": "Once upon a time"}
    with running(model, max_tokens_per_minute=5) as server:
        assert server.client.post(path, json=body).status_code == 200
        server.client.post(path, json=body)
        response = server.client.post(path, json=body)
        assert response.status_code == 429
        assert "more than 5 tokens per minute" in response.json()["error"]["message"]
