"""Plans of a repository's quantizations, from headers that are read by HTTP ranges."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import pumice
from hub_server import Hub, Repository
from pumice.cli import cli
from pumice.errors import GGUFError, HubError
from pumice.gguf import GGMLType, GGUFFile, row_bytes
from pumice.gguf.writer import TensorInfo, Writer
from pumice.hub.headers import find_remote, read_models, read_range
from pumice.hub.repository import cache_directory
from tiny_zoo import ZOO

MODEL = ZOO["qwen3moe"]


def quantized(path: Path, type: GGMLType, padding: int = 0) -> bytes:
    """The model with matrices of one type, whose metadata has ``padding`` bytes more."""
    infos = [TensorInfo(name, type if len(shape) > 1 else GGMLType.F32, shape) for name, shape in MODEL.shapes.items()]
    metadata = {**MODEL.keys(), "tests.padding": np.zeros(padding, np.uint8), "general.file_type": int(type)}
    with Writer(path, metadata, infos) as writer:
        for info in infos:
            n_bytes = int(np.prod(info.shape[:-1])) * row_bytes(info.type, info.shape[-1])
            writer.write(np.full(n_bytes, 1, np.uint8))
    return path.read_bytes()


@pytest.fixture
def repository(hub: Hub, tmp_path: Path) -> Repository:
    """``a/b``: three quantizations with headers of more than a mebibyte, and one that is damaged."""
    types = {"Q4_K_M": GGMLType.Q8_0, "F16": GGMLType.F16, "F32": GGMLType.F32}
    files = {f"M-{name}.gguf": quantized(tmp_path / f"{name}.gguf", type, 1_500_000) for name, type in types.items()}
    hub.repositories["a/b"] = Repository({**files, "M-Q2_K.gguf": b"GGUF" + bytes(100), "README.md": b"hello"})
    return hub.repositories["a/b"]


def plan(*arguments: str) -> Any:
    options = ["-c", "64", "-b", "8", "--memory", "1GiB", "--ram", "1GiB"]
    return CliRunner().invoke(cli, ["fit", *arguments, *options], catch_exceptions=False)


def test_quantizations_of_a_repository(hub: Hub, repository: Repository) -> None:
    done = plan("hf.co/a/b", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == "hf.co/a/b:Q4_K_M"
    assert [item["label"] for item in found["quantizations"]] == ["Q4_K_M", "F16", "F32"]
    sizes = [item["n_bytes"] for item in found["quantizations"]]
    assert sizes == sorted(sizes)
    assert all(item["fits"] for item in found["quantizations"])
    assert not list(cache_directory().glob("**/*.gguf")), "nothing is downloaded"
    assert sum(n_bytes for _, n_bytes in hub.sent) < 2 * 1_500_000, "other headers are not read whole"
    lines = plan("hf.co/a/b:F32").stdout.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["Q4_K_M", "F16", "F32"]


def test_headers_are_those_of_the_files(hub: Hub, repository: Repository, tmp_path: Path) -> None:
    remote = find_remote("a/b")
    assert remote is not None

    def read(number: int, start: int, stop: int) -> bytes:
        return read_range(remote, number, start, stop)

    for model, file in read_models(remote, read):
        path = tmp_path / "whole.gguf"
        path.write_bytes(repository.files[model.files[0]])
        with GGUFFile.open(path) as whole:
            assert [(t.name, t.type, t.shape) for t in file.tensors.values()] == [
                (t.name, t.type, t.shape) for t in whole.tensors.values()
            ]
            assert file.n_bytes == whole.n_bytes


def test_a_split_model(hub: Hub, tmp_path: Path) -> None:
    quantized(tmp_path / "M-F16.gguf", GGMLType.F16)
    split = ["gguf", "split", str(tmp_path / "M-F16.gguf"), str(tmp_path / "M-F16"), "--max-tensors", "20"]
    assert CliRunner().invoke(cli, split, catch_exceptions=False).exit_code == 0
    parts = sorted(tmp_path.glob("M-F16-*"))
    assert len(parts) > 1
    hub.repositories["a/b"] = Repository({path.name: path.read_bytes() for path in parts})
    expected = pumice.plan(tmp_path / "M-F16.gguf", n_ctx=64)
    found = pumice.plan("hf.co/a/b:F16", n_ctx=64)
    assert [device.parts for device in found.devices] == [device.parts for device in expected.devices]
    assert not list(cache_directory().glob("**/*.gguf"))


def test_a_server_without_ranges(hub: Hub, repository: Repository) -> None:
    hub.faults.ignore_range = True
    assert plan("a/b").exit_code == 0


def test_errors_name_the_model(hub: Hub, repository: Repository) -> None:
    with pytest.raises(GGUFError, match=r"M-Q2_K.gguf"):
        pumice.plan("a/b:Q2_K")
    with pytest.raises(HubError, match="no such repository"):
        pumice.plan("a/c")
    hub.faults.cut_after = [100]
    with pytest.raises(HubError, match=r"a/b.*; try again$"):
        pumice.plan("a/b")
