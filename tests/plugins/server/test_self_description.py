"""``/openapi.json`` and ``/docs``: every endpoint, every field, and nothing that comes from elsewhere."""

import re

import pytest

from pumice_server.application import operations
from pumice_server.endpoints.reference import HEADERS


@pytest.fixture(scope="module")
def document(server):
    return server.client.get("/openapi.json").json()


def test_every_endpoint_is_described(document):
    expected = {(each.method.lower(), path.replace(":path}", "}")) for each in operations() for path in each.paths}
    paths = document["paths"]
    assert {(method, path) for path in paths for method in paths[path]} == expected
    assert [path for method, path in expected if not paths[path][method]["summary"].endswith(".")] == []


def test_the_page_has_all_and_loads_nothing(server, document):
    answer = server.client.get("/docs")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "script" not in answer.headers["Content-Security-Policy"]
    page = answer.text
    assert re.findall(r"<script|<link|<img|https?://|@import|url\(", page) == []
    for path in document["paths"]:
        assert f"<code>{path.partition('{')[0]}" in page
    for name, schema in document["components"]["schemas"].items():
        if schema.get("properties"):
            assert f"<h3 id={name}>" in page
    targets = set(re.findall(r"href='#(\w+)'", page))
    assert targets
    assert targets <= set(re.findall(r"<h3 id=(\w+)>", page))
    for text in ("top_k", "integer, 1 to 16", "Refused: ", "Scope of the key: admin"):
        assert text in page
