"""Control vectors: llama.cpp's logits, scales and layers, and files that do not fit."""

from pathlib import Path

import numpy as np
import pytest

import pumice
from adapters import write_case
from control_vectors import directions, write_control_vector
from nightly import variants
from pumice.errors import ConfigError, ModelError
from reference_models import error
from tiny_models import IDS
from tiny_zoo import LIMITS, ZOO
from vision_files import write_projector

LOGITS = np.load(Path(__file__).parents[2] / "fixtures" / "control_vectors.npz")
MODEL = ZOO["llama-bias"]
MARKING = [
    *("llama-bias", "bailingmoe3-compressed", "deci", "gemma4-e2b", "grok2", "hrm_text", "jamba", "kimi-k3"),
    *("nemotron_h", "talkie"),
]
"""A plain decoder, and families that mark outputs of layers themselves or have layers that llama.cpp leaves out."""


def load(folder, adapters, name="llama-bias", **options):
    path = folder / "model.gguf"
    if not path.exists():
        ZOO[name].write(path)
    return pumice.load(path, **{"backend": "numpy", "kv_type": "f32"} | options, config={"adapters": adapters})


@pytest.mark.parametrize("name", variants(sorted(set(LOGITS.files) - {"demo"}), MARKING))
def test_logits_are_llama_cpps(tmp_path, name):
    file = str(write_control_vector(tmp_path / "v.gguf", directions(ZOO[name])))
    with load(tmp_path, {"v": file}, name) as model:
        assert error(model.logits(ZOO[name].ids)[-1], LOGITS[name]) < LIMITS.get(name, 1e-6)


def four_layers():
    """A deeper model than the zoo's, so that there are layers to choose."""
    metadata = MODEL.metadata | {"block_count": 4}
    shapes = dict(MODEL.shapes)
    for i in (2, 3):
        layer = {n.replace("blk.1.", f"blk.{i}."): shape for n, shape in MODEL.shapes.items() if n.startswith("blk.1.")}
        shapes |= layer
    return type(MODEL)(MODEL.architecture, metadata, shapes)


@pytest.fixture
def deep(tmp_path):
    """A model of four layers, and directions of the last three."""
    model = four_layers()
    model.write(tmp_path / "model.gguf")
    return directions(model)


def logits(folder, adapters, asked=None, **options):
    with load(folder, adapters, **options) as model:
        return model.logits(IDS, adapters=asked)


def test_scales_and_layers(tmp_path, deep):
    whole = str(write_control_vector(tmp_path / "whole.gguf", deep))
    middle = str(write_control_vector(tmp_path / "middle.gguf", {"direction.2": deep[1]}))
    half = str(write_control_vector(tmp_path / "half.gguf", {"direction.2": deep[1] / 2}))
    expected = logits(tmp_path, {"m": middle})
    assert np.allclose(logits(tmp_path, {"w": {"file": whole, "layers": [2, 2]}}), expected)
    assert np.allclose(logits(tmp_path, {"h": {"file": half, "scale": 2.0}}), expected, atol=1e-5)
    assert np.allclose(logits(tmp_path, {"a": half, "b": half}), expected, atol=1e-5)
    assert np.allclose(logits(tmp_path, {"h": half}, {"h": 2.0}), expected, atol=1e-5)
    assert np.allclose(logits(tmp_path, {"h": half}, {}), logits(tmp_path, {}), atol=1e-6)
    assert error(logits(tmp_path, {"w": whole}), expected) > 1e-3


def test_requests_of_one_batch_have_scales_of_their_own(tmp_path, deep):
    named = {"w": {"file": str(write_control_vector(tmp_path / "w.gguf", deep)), "scale": 0.0}}
    wanted = [{"w": 1.5}, {"w": -1.5}, None, {}]
    greedy = {"temperature": 0.0, "max_tokens": 8}
    with load(tmp_path, named, backend="cpu", n_parallel=4) as model:
        alone = [model.generate(IDS, adapters=adapters, **greedy).tokens for adapters in wanted]
        together = model.generate_many([IDS] * 4, each=[{"adapters": adapters} for adapters in wanted], **greedy)
        assert [each.tokens for each in together] == alone
        expected = model.logits(IDS, adapters={"w": 1.5})
    assert np.allclose(logits(tmp_path, named, {"w": 1.5}), expected, atol=1e-3)
    assert alone[2] == alone[3]
    assert len({tuple(tokens) for tokens in alone}) == 3


@pytest.mark.parametrize(
    ("tensors", "metadata", "options", "message"),
    [
        ({}, {}, {}, "the control vector has no directions"),
        ({"direction.1": 32}, {}, {}, r"direction\.1 is F32 \[32\], but the model needs F32 \[64\]"),
        ({"direction.0": 64}, {}, {}, r"unexpected tensor 'direction\.0' in a control vector"),
        ({"direction.x": 64}, {}, {}, r"unexpected tensor 'direction\.x' in a control vector"),
        ({"blk.1": 64}, {}, {}, r"unexpected tensor 'blk\.1' in a control vector"),
        ({"direction.7": 64}, {}, {}, "changes layer 7, which this model does not have"),
        ({"direction.1": 64}, {}, {"layers": [2, 3]}, "directions exist for layers 1 to 1, but not for 2 to 3"),
        ({"direction.1": 64}, {"general.architecture": "llama"}, {}, "neither a LoRA adapter nor a control vector"),
        ({"direction.1": 64}, {"general.architecture": "llama"}, {"layers": [1, 2]}, "applies only to control vectors"),
    ],
)
def test_files_that_do_not_fit(tmp_path, tensors, metadata, options, message):
    values = {name: np.ones(n) for name, n in tensors.items()}
    file = str(write_control_vector(tmp_path / "v.gguf", values, **metadata))
    with pytest.raises(ModelError, match=message):
        load(tmp_path, {"v": {"file": file} | options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file": "v.gguf", "layers": [3, 1]}, "adapters.v.layers: should be the first and the last layer"),
        ({"file": "v.gguf", "layers": [0, 1]}, "adapters.v.layers: should be the first and the last layer"),
        ({"file": "v.gguf", "scale": "much"}, "adapters.v.scale: should be a number, not 'much'"),
        ({"file": "v.gguf", "scal": 1.0}, "unknown key 'adapters.v.scal'; did you mean 'scale'"),
        ({"scale": 1.0}, "adapters.v: the key 'file' is missing"),
    ],
)
def test_wrong_settings(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, {"v": options})


@pytest.mark.parametrize("as_draft", [False, True])
def test_files_of_other_kinds_are_no_models(tmp_path, deep, as_draft):
    """They had an unknown architecture, or lacked a metadata key."""
    vector, lora = write_control_vector(tmp_path / "v.gguf", deep), write_case(tmp_path, "two")[0][0]
    write_projector(projector := tmp_path / "mmproj.gguf", "mlp")
    for path, message in (
        (vector, "a control vector, not a model; load it beside its model with --control-vector"),
        (lora, "a LoRA adapter, not a model; load it beside its model with --lora"),
        (projector, "a projector, not a model; load it beside its model with --mmproj"),
    ):
        options = {"draft": str(path)} if as_draft else {}
        with pytest.raises(ModelError) as error:
            pumice.load(pumice.demo_model_path() if as_draft else path, backend="numpy", **options)
        assert str(error.value) == f"{path}: {message}"
