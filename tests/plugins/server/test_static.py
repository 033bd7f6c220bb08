"""The page: its files, what browsers are told about them, and nothing beside them."""

import os

import pytest

from pumice_server.endpoints import static


@pytest.fixture
def page(server, tmp_path, monkeypatch):
    """A page in a folder, with a link that leads out of it."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>chat</title>")
    (folder / "app.js").write_text("let x = 1\n")
    (tmp_path / "secret").write_text("key")
    os.symlink(tmp_path / "secret", folder / "link")
    monkeypatch.setattr(static, "FOLDER", folder)
    files = next(route.app for route in server.application.routes if getattr(route, "path", "") == "/page")
    monkeypatch.setattr(files, "all_directories", [folder])
    return server.client


def test_browsers_get_the_page_and_its_files(page):
    answer = page.get("/", headers={"Accept": "text/html"})
    assert "<title>chat" in answer.text
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert page.get("/").text.startswith("Pumice serves")
    answer = page.get("/page/app.js")
    assert answer.text == "let x = 1\n"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert page.get("/page/app.js", headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304


def test_html_of_answers_runs_without_an_origin_or_a_server(page):
    (static.FOLDER / "frame.html").write_text("<!doctype html>")
    headers = page.get("/page/frame.html").headers
    rules = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert headers["X-DNS-Prefetch-Control"] == "off"
    assert rules["default-src"] == "'none'"
    assert rules["sandbox"] == "allow-scripts"
    assert "connect-src" not in rules
    assert "unsafe-inline" not in page.get("/page/app.js").headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/page/none", "/page/../secret", "/page/%2e%2e/secret", "/page/link", "/page/"])
def test_nothing_beside_them(page, path):
    assert page.get(path).status_code == 404
