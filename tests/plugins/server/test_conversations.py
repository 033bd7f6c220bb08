"""Conversations of the page that the server keeps: who has which, bad requests, bad files."""

import os
import sqlite3

import httpx2
import pytest

import pumice
from pumice_server.endpoints.conversations import Conversations
from scripted_server import scripted
from server_thread import running
from waiting import PATIENCE


def client(url: str, key: str = "") -> httpx2.Client:
    return httpx2.Client(base_url=url, headers={"X-Api-Key": key}, timeout=PATIENCE)


def test_they_are_kept_and_outlive_the_server(tmp_path):
    file = tmp_path / "chats.db"
    kept, said = {"id": "a", "title": "Höhe", "leaf": None}, {"id": "m", "parent": None, "content": "Hi"}
    with scripted(file) as server, client(server.url) as ask:
        assert ask.get("/conversations").json() == []
        for title in ("first", kept["title"]):
            assert ask.put("/conversations/a", json={**kept, "title": title}).status_code == 200
            assert ask.put("/conversations/a/messages/m", json=said).status_code == 200
    with scripted(file) as server, client(server.url) as ask:
        assert ask.get("/conversations").json() == [kept]
        assert ask.get("/conversations/a/messages").json() == [said]
        assert ask.delete("/conversations/a").status_code == 200
        assert ask.get("/conversations").json() == ask.get("/conversations/a/messages").json() == []


def test_each_key_has_its_own(tmp_path):
    with (
        scripted(tmp_path / "chats.db", keys=("one", "two")) as server,
        client(server.url, "one") as one,
        client(server.url, "two") as two,
        client(server.url) as nobody,
    ):
        one.put("/conversations/a", json={"title": "mine"})
        one.put("/conversations/a/messages/m", json={"content": "secret"})
        assert two.get("/conversations").json() == two.get("/conversations/a/messages").json() == []
        assert two.put("/conversations/a/messages/n", json={}).status_code == 404
        two.delete("/conversations/a")
        assert one.get("/conversations").json() == [{"title": "mine"}]
        assert nobody.get("/conversations").status_code == 401


def test_bad_ids_and_bodies(tmp_path):
    with scripted(tmp_path / "chats.db") as server, client(server.url) as ask:
        for id in ("a.b", "%27--", "a" * 65):
            assert ask.put(f"/conversations/{id}", json={}).status_code == 400
        for body in (b"", b"[]", b"{", b"\xff", b'{"a":' + b"[" * 100 + b"]" * 100 + b"}"):
            assert ask.put("/conversations/a", content=body).status_code == 400
        assert ask.get("/conversations").json() == []


def test_nothing_is_kept_unless_asked_for():
    with scripted() as server, client(server.url) as ask:
        assert ask.get("/conversations").status_code == 404


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "text").write_text("no database, and not empty either " * 100)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, *(tmp_path / name for name in ("none/chats.db", "text", "pipe"))):
        with pytest.raises(pumice.PumiceError, match="conversations cannot be kept in"):
            Conversations(path)
    with sqlite3.connect(tmp_path / "newer.db") as database:
        database.execute("PRAGMA user_version = 7")
    with pytest.raises(pumice.PumiceError, match="another version of Pumice: 7"):
        Conversations(tmp_path / "newer.db")


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT '' owner, '{}' body FROM n"
CRAFTED = {
    "a view that never ends": f"CREATE VIEW conversation AS {ENDLESS}; CREATE TABLE message (a)",
    "a trigger": "CREATE TABLE conversation (a); CREATE TABLE message (a); "
    "CREATE TRIGGER t AFTER INSERT ON message BEGIN DELETE FROM conversation; END",
    "other tables": "CREATE TABLE a (b)",
    "nothing": "",
}


@pytest.mark.parametrize("schema", CRAFTED.values(), ids=CRAFTED)
def test_crafted_databases_are_refused(tmp_path, schema):
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.executescript(f"{schema}; PRAGMA user_version = 1")
    with pytest.raises(pumice.PumiceError, match="is a database of something else"):
        Conversations(tmp_path / "a.db")


def test_a_disk_that_is_full_is_told_and_logged(tmp_path, model, monkeypatch, caplog):
    def fail(*_):
        raise sqlite3.OperationalError("database or disk is full")

    with running(model, conversations=tmp_path / "chats.db") as server:
        monkeypatch.setattr(Conversations, "_execute", fail)
        answer = server.client.put("/conversations/a", json={})
    message = "conversations cannot be kept: database or disk is full"
    assert (answer.status_code, answer.json()["error"]["message"]) == (507, message)
    assert message in caplog.text
