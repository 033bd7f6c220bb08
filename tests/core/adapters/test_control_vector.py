"""Making control vectors: llama.cpp's means, exact axes, and prompts that make none."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import pumice
from control_vectors import write_pairs
from pumice.adapters.control_vector import Contrast, principal_axis, write_directions
from pumice.cli import cli
from pumice.errors import GGUFError, ModelError, RequestError
from pumice.gguf import GGUFFile
from tiny_models import IDS
from tiny_zoo import ZOO

FOUND = np.load(Path(__file__).parents[2] / "fixtures" / "control_vectors.npz")["demo"]


def run(*arguments):
    return CliRunner().invoke(cli, ["control-vector", *map(str, arguments)], catch_exceptions=False)


def load(folder, contrast, name="llama-bias", **options):
    path = folder / f"{name}.gguf"
    if not path.exists():
        ZOO[name].write(path)
    return pumice.load(path, backend="numpy", kv_type="f32", observer=contrast, **options)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_means_are_llama_cpps(tmp_path, backend):
    out = tmp_path / "v.gguf"
    run(*write_pairs(tmp_path), "-o", out, "--method", "mean", "--backend", backend)
    with GGUFFile.open(out) as file:
        keys = dict(file.metadata)
        made = np.stack([tensor.dequantize() for tensor in file.tensors.values()])
        assert list(file.tensors) == [f"direction.{i + 1}" for i in range(len(FOUND))]
    assert np.linalg.norm(made, axis=1) == pytest.approx(1.0)
    assert (made * FOUND).sum(axis=1).min() > 0.999  # llama.cpp rounds activations to eight bits
    kind = {"general.architecture": "controlvector", "controlvector.model_hint": "llama"}
    assert keys == kind | {"controlvector.layer_count": len(FOUND)}
    with pumice.load(backend=backend, config={"adapters": {"v": str(out)}}) as model:
        assert np.isfinite(model.logits(IDS)).all()


def test_axes_are_eigenvectors():
    random = np.random.default_rng(1)
    for n_rows in (5, 300):
        rows = (random.standard_normal((n_rows, 64)) + random.standard_normal(64) * 0.4).astype(np.float32)
        expected = np.linalg.eigh(rows.T.astype(np.float64) @ rows)[1][:, -1]
        axis = principal_axis(rows)
        assert abs(axis @ expected) == pytest.approx(1.0, abs=1e-5)
        assert rows.mean(axis=0) @ axis > 0
        assert np.allclose(principal_axis(-rows), -axis, atol=1e-4)
    assert abs(principal_axis(np.array([[1, 0], [-1, 0]], np.float32))[0]) == 1.0


def test_prompts_that_make_no_vector(tmp_path):
    contrast = Contrast()
    with load(tmp_path, contrast) as model:
        with pytest.raises(RequestError, match="the prompts of a pair have 24 and 3 tokens"):
            contrast.add(model, IDS, IDS[:3])
        with pytest.raises(RequestError, match="do not differ"):
            contrast.directions()
        contrast.add(model, IDS, IDS)
        with pytest.raises(RequestError, match="do not differ"):
            contrast.directions("mean")
    with pytest.raises(ModelError, match="a control vector needs a model with at least two layers"):
        load(tmp_path, Contrast(), "glm4-drafts")


def test_wrong_input(tmp_path):
    options = write_pairs(tmp_path)
    out = tmp_path / "v.gguf"
    out.write_bytes(b"mine")
    with pytest.raises(GGUFError, match="exists already; give --force"):
        run(*options, "-o", out)
    with pytest.raises(GGUFError, match="exists already"):
        write_directions(out, [FOUND[0]], "llama")
    assert out.read_bytes() == b"mine"
    (tmp_path / "negative.txt").write_text("one\n\n")
    assert "has 3 prompts and" in run(*options, "-o", tmp_path / "w.gguf").stderr
    (tmp_path / "negative.txt").write_bytes(b"one\n\xff\n")
    assert "negative.txt:2: is not UTF-8" in run(*options, "-o", tmp_path / "w.gguf").stderr
    (tmp_path / "negative.txt").unlink()
    assert "negative.txt: no such file" in run(*options, "-o", tmp_path / "w.gguf").stderr
    assert not (tmp_path / "w.gguf").exists()
