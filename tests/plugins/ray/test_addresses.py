"""Addresses of clusters are checked before Ray, which takes seconds to import and tries for minutes to connect."""

import socket
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

import pumice
from pumice_ray.cluster import RayCluster


def test_no_cluster_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    (tmp_path / "ray.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        Thread(target=other.handle_request).start()
        for address, problem in {
            "": "this machine is in no Ray cluster",
            "127.0.0.1:1": "no Ray cluster at 127.0.0.1:1: .*refused",
            f"127.0.0.1:{other.server_port}": "another server has this port",
        }.items():
            with pytest.raises(pumice.PumiceError, match=problem), RayCluster(address).connected(start=False):
                pass


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.51.0\n"),
            "the Ray cluster at {}: Version mismatch: The cluster was started with: Ray: 2.51.0",
        ),
        (
            ConnectionError("Failed to connect"),
            "no Ray cluster at {}: Failed to connect (set RAY_AUTH_MODE=token if it requires a token)",
        ),
    ],
)
def test_a_cluster_that_refuses_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, problem: str
) -> None:
    def init(**_: object) -> None:
        raise error

    def greet(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"\0\0\0\4")
            while connection.recv(100):
                pass

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=greet, args=[server]).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(pumice.PumiceError) as told, RayCluster(address).connected():
            pass
    assert str(told.value) == problem.format(address)
