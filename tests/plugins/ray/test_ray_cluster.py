"""Which cluster commands connect to: the one named, else that of this machine, else one of their own."""

import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pumice
from pumice.cli import cli
from pumice_ray import cluster


class Ray:
    """The part of Ray that a connection uses."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def init(self, address: str, **options: Any) -> None:
        self.asked.append(address)

    def is_initialized(self) -> bool:
        return False


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ray:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster.tempfile, "tempdir", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return Ray()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_cluster_that_has_ended_makes_nobody_wait(ray: Ray, tmp_path: Path) -> None:
    note = tmp_path / "ray" / "ray_current_cluster"
    cluster._connect(ray, "", {})
    note.write_text(f"127.0.0.1:{free_port()}\n")
    cluster._connect(ray, "", {})
    with socket.create_server(("127.0.0.1", 0)) as server:
        note.write_text(f"127.0.0.1:{server.getsockname()[1]}\n")
        cluster._connect(ray, "", {})
    assert ray.asked == ["local", "local", "auto"]


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_cluster_that_is_named_has_to_be_there(
    ray: Ray, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    address = f"127.0.0.1:{free_port()}"
    if by_environment:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(pumice.PumiceError, match=f"no Ray cluster at {address}"):
        cluster._connect(ray, "" if by_environment else address, {})
    assert ray.asked == []


def test_a_cluster_that_does_not_start_is_one_line(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(address: str, **options: Any) -> None:
        raise Exception("The current node timed out during startup.\nSome of the raylet failed")  # as Ray does

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(pumice.PumiceError, match=r"^Ray does not start on this machine: The current node timed out"):
        cluster._connect(ray, "", {})


def test_a_list_of_models_starts_no_cluster(ray: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_ray", lambda: ray)
    note = tmp_path / "ray" / "ray_current_cluster"
    for address in ("", f"127.0.0.1:{free_port()}"):
        note.write_text(address)
        result = CliRunner().invoke(cli, ["ps", "--ray"])
        assert str(result.exception).startswith("no Ray cluster runs on this machine; name the address of another")
    assert ray.asked == []
