"""Adapters that peft has saved: its logits, and what cannot be converted."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import pumice
from checkpoints import FIXTURES, PROMPT, ROWS, checkpoint_of, weights, write_safetensors
from pumice.cli import cli
from pumice.errors import ConvertError
from reference_models import error

CHECKPOINTS = json.loads((FIXTURES / "cases.json").read_text())
ADAPTERS = json.loads((FIXTURES / "adapters.json").read_text())
LOGITS = np.load(FIXTURES / "adapters.npz")


@pytest.fixture
def folders(tmp_path):
    """Make the folders of an adapter and of its model."""

    def make(name, config=None, tensors=None):
        case = ADAPTERS[name]
        model = checkpoint_of(tmp_path / "base", CHECKPOINTS[case["checkpoint"]])
        adapter = tmp_path / "adapter"
        adapter.mkdir(exist_ok=True)
        values = {**case["config"], "base_model_name_or_path": str(model), **(config or {})}
        (adapter / "adapter_config.json").write_text(json.dumps(values))
        arrays = {key: weights(key, shape) * 4 for key, shape in case["shapes"].items()}
        write_safetensors(adapter / "adapter_model.safetensors", {**arrays, **(tensors or {})})
        return model, adapter

    return make


@pytest.mark.parametrize("name", ADAPTERS)
def test_logits_are_pefts(folders, name):
    model, adapter = folders(name)
    expected = LOGITS[name].astype(np.float32)
    adapters = {"adapters": {"a": str(adapter)}}
    with pumice.load(model, backend="numpy", kv_type="f32", n_ctx=64, config=adapters) as loaded:
        assert error(loaded.logits(PROMPT)[ROWS], expected) < 1e-4
        assert error(loaded.logits(PROMPT, adapters={})[ROWS], expected) > 1e-3


def test_a_file_is_the_folder(folders, tmp_path):
    model, adapter = folders("llama-patterns")
    out = CliRunner().invoke(cli, ["convert", str(adapter)], catch_exceptions=False).stdout.strip()
    assert out == str(adapter / "adapter-F32-LoRA.gguf")
    logits = []
    for path in (adapter, out):
        with pumice.load(model, n_ctx=64, config={"adapters": {"a": str(path)}}) as loaded:
            logits.append(loaded.logits(PROMPT))
    assert (logits[0] == logits[1]).all()


def test_the_model_must_be_known(folders, tmp_path):
    _, adapter = folders("llama", config={"base_model_name_or_path": "somebody/model"})
    with pytest.raises(ConvertError, match="with `pumice convert --base`; it was made for 'somebody/model'"):
        CliRunner().invoke(cli, ["convert", str(adapter)], catch_exceptions=False)
    options = ["--base", str(tmp_path / "base"), "--dry-run"]
    assert "28 tensors" in CliRunner().invoke(cli, ["convert", str(adapter), *options]).stdout


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--mmproj"], "--mmproj is for models, not LoRA adapters"),
        (["--split-max-size", "1M"], "--split-max-size is for models, not LoRA adapters"),
        (["--outtype", "q8_0"], "--outtype: a LoRA adapter is written as F32, not q8_0"),
    ],
)
def test_options_of_models_are_refused_for_adapters(folders, option, message):
    done = CliRunner().invoke(cli, ["convert", str(folders("llama")[1]), *option])
    assert (done.exit_code, message in done.stderr) == (2, True)


def pair(n, rank):
    """Return the two matrices of one module; the second one has another shape than the ``[32, 4]`` it needs."""
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    ones = {"lora_A": np.ones((4, 32), np.float32), "lora_B": np.ones((n, rank), np.float32)}
    return {f"{name}.{part}.weight": array for part, array in ones.items()}


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        ({"peft_type": "IA3"}, {}, "peft_type is 'IA3'; only LORA is supported"),
        ({"use_dora": True}, {}, "DoRA is not supported"),
        ({}, {"base_model.model.lm_head.weight": np.ones((4, 4), np.float32)}, "a whole tensor; only LoRA pairs"),
        ({}, {"base_model.model.x.lora_A.weight": np.ones((4, 4), np.float32)}, "'x' lacks one matrix of its pair"),
        ({"lora_alpha": "much"}, {}, "is not understood, perhaps since 'lora_alpha' is 'much'"),
        ({}, pair(32, 3), r"'.*q_proj': shapes \[4, 32\] and \[32, 3\] do not match"),
        ({}, pair(30, 4), "q_proj.weight' .* does not fit the configuration"),
    ],
)
def test_adapters_of_other_kinds(folders, config, tensors, message):
    model, adapter = folders("llama", config, tensors)
    with pytest.raises(ConvertError, match=message):
        pumice.load(model, config={"adapters": {"a": str(adapter)}})
