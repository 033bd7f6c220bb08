"""API keys: names, scopes, digests, a file that is read again."""

import hashlib
import hmac
import math

import click
import pytest

from pumice_server.keys import APIKeys
from server_thread import running


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "keys.txt"
    hashed = hashlib.sha256(b"hashed-key").hexdigest()
    made.write_text(f"# ours\n\nplain-key\nalice infer alice-key\nops infer,admin sha256:{hashed}\n")
    return made


def test_lines_of_a_file(file):
    keys = APIKeys(["given,other"], file)
    assert len(keys) == 5
    assert [(keys.find(key).name, sorted(keys.find(key).scopes)) for key in ("given", "alice-key", "hashed-key")] == [
        ("", ["admin", "infer"]),
        ("alice", ["infer"]),
        ("ops", ["admin", "infer"]),
    ]
    assert keys.find("nobody's") is None
    assert keys.find("") is None


def test_a_file_is_read_again(file):
    keys = APIKeys((), file)
    file.write_text("new-key\n")
    keys.reload()
    assert keys.find("new-key")
    assert keys.find("plain-key") is None
    file.write_text("a b\n")
    with pytest.raises(click.ClickException, match="expected a key, or a name, scopes and a key"):
        keys.reload()
    assert keys.find("new-key")


@pytest.mark.parametrize("text", ["", "# none\n", "bob everything key\n"])
def test_files_without_keys(file, text):
    file.write_text(text)
    with pytest.raises(click.ClickException):
        APIKeys((), file)


def test_keep_alive_needs_the_scope_to_unload(model, file):
    with running(model, keys=APIKeys((), file)) as server:
        entry = server.application.state.models.served_models[0]
        for key, told, kept in (("alice-key", "load", math.inf), ("hashed-key", "unload", 0)):
            body = {"model": "demo", "keep_alive": 0}
            answer = server.client.post("/api/generate", json=body, headers={"X-Api-Key": key})
            assert (answer.json()["done_reason"], entry.keep_alive) == (told, kept)


def test_every_key_is_compared_whichever_it_is(file, monkeypatch):
    """In a time that tells nothing: no comparison is left out, and none ends at the first byte that differs."""
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *pair: compared.append(pair) or pair[0] == pair[1])
    keys = APIKeys(["given,other"], file)
    for key in ("given", "plain-key", "hashed-key", "nobody's", ""):
        compared.clear()
        keys.find(key)
        assert len(compared) == 5
        assert {len(digest) for pair in compared for digest in pair} == {32}
