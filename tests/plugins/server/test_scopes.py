"""Every route, with every method and every kind of key: what each scope may do."""

from collections.abc import Iterator

import pytest
from starlette.routing import Mount, Route

from pumice_server.keys import APIKeys
from server_thread import Running, running

KEYS = {"infer": "infer-key", "admin": "admin-key", "both": "both-key"}
PUBLIC = {"/", "/docs", "/openapi.json", "/health", "/v1/health", "/livez", "/readyz"}
ADMIN = {
    *("GET /metrics", "POST /models/load", "POST /models/unload", "POST /models", "DELETE /models", "POST /api/pull"),
    *("GET /api/blobs/{digest}", "POST /api/blobs/{digest}", "POST /api/create", "POST /api/copy"),
    *("DELETE /api/delete", "POST /lora-adapters", "DELETE /lora-adapters", "GET /slots", "POST /slots/{id}"),
}
PULLS = ("/api/pull", "/models", "/api/blobs/{digest}")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@pytest.fixture(scope="module")
def guarded(model, tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("scopes")
    lines = [f"{name} {'infer,admin' if name == 'both' else name} {key}" for name, key in KEYS.items()]
    (folder / "keys").write_text("\n".join(lines))
    with running(model, keys=APIKeys(file=folder / "keys"), conversations=folder / "chats.db") as server:
        yield server


def routes(server: Running) -> list[Route]:
    found = [route for route in server.application.routes if not isinstance(route, Mount)]
    assert len(found) > 70
    return found


def status(server: Running, method: str, path: str, key: str | None) -> int:
    headers = {"X-Api-Key": KEYS[key]} if key else {}
    with server.client.stream(method, path.replace("{", "").replace("}", ""), headers=headers) as response:
        return response.status_code  # without the body: a stream of events has no end


def test_without_a_key_only_what_is_public(guarded):
    for path in {route.path for route in routes(guarded)}:
        for method in METHODS:
            told = status(guarded, method, path, None)
            assert (told == 401) == (path not in PUBLIC), (method, path, told)
            assert told < 500 or path == "/readyz", (method, path, told)
    assert status(guarded, "OPTIONS", "*", None) == 401


@pytest.mark.parametrize("key", KEYS)
def test_each_key_may_do_what_its_scope_says(guarded, key):
    """A key of the scope admin alone generates nothing, one of infer changes nothing for others."""
    for route in routes(guarded):
        for method in route.methods:
            needed = "admin" if f"{method} {route.path}".replace("HEAD", "GET") in ADMIN else "infer"
            refused = route.path not in PUBLIC and key not in (needed, "both")
            told = status(guarded, method, route.path, key)
            expected = {403} if refused else {200, 204, 400, 404, 403 if route.path in PULLS else 400, 501}
            assert told in expected, (method, route.path, told)
    for target in ("*", "//", "/%00", "/slots/../metrics"):
        assert status(guarded, "OPTIONS", target, key) in (400, 404, 405)
