"""Metadata that settings override: texts and logits are those of a file with these values written into it."""

import click
import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama
from pumice.cache_tiers.identity import identity_of
from pumice.cli.metadata_options import METADATA_OPTIONS
from pumice.engine.cache import tiers
from pumice.errors import ConfigError

YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
CASES = [
    {"rope.freq_base": 500000.0},
    {"rope.scaling.factor": 2.0},
    YARN,
    {**YARN, "rope.scaling.yarn_ext_factor": 0.0, "rope.scaling.yarn_attn_factor": 1.25},
    {**YARN, "rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0},
    {"attention.layer_norm_rms_epsilon": 0.1},
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("plain") / "tiny.gguf", n_layer=1)


def logits(path, **options) -> np.ndarray:
    with pumice.load(path, backend="numpy", n_ctx=256, **options) as model:
        return model.logits(list(range(3, 120)))


@pytest.fixture(scope="module")
def plain(file):
    return logits(file)


@pytest.mark.parametrize("values", CASES, ids=str)
def test_a_model_is_that_of_a_file_with_these_values(file, plain, tmp_path, values):
    written = {f"llama.{key}": value for key, value in values.items()}
    expected = logits(tiny_llama(tmp_path / "written.gguf", n_layer=1, more=written))
    overridden = logits(file, override_kv={f"*.{key}": value for key, value in values.items()})
    np.testing.assert_array_equal(overridden, expected)
    assert np.abs(overridden - plain).max() > 1e-3


def test_values_of_a_tokenizer_are_overridden_too(file):
    with pumice.load(file, backend="numpy", override_kv={"tokenizer.ggml.add_bos_token": False}) as model:
        assert model.tokenizer.tokenize("a")[0] != 1
        assert model.metadata["tokenizer.ggml.add_bos_token"] is False


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("llama.block_count", "one", r"metadata key 'llama.block_count' is of type u32, so it cannot be 'one'"),
        ("llama.block_count", 1.5, r"metadata key 'llama.block_count': 1.5 is not a value of type u32"),
        ("tokenizer.ggml.model", 3, r"metadata key 'tokenizer.ggml.model' is of type str, so it cannot be 3"),
        ("tokenizer.ggml.tokens", 3, r"metadata key 'tokenizer.ggml.tokens'"),
        ("llama.block_count", 2**40, r"metadata key 'llama.block_count': 1099511627776 is not a value of type u32"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(file, key, value, problem):
    with pytest.raises(ConfigError, match=rf"^override_kv: {problem}"):
        pumice.load(file, backend="numpy", override_kv={key: value})


def test_a_value_of_no_type_is_an_error_that_names_the_types(file):
    with pytest.raises(ConfigError, match=r"override_kv\.a: should be true or false or .* or a string, not \{\}"):
        pumice.load(file, backend="numpy", override_kv={"a": {}})


def read(*arguments: str) -> dict | None:
    """Return the metadata that options of the command line override."""
    command = click.command(lambda override_kv: override_kv)
    for add in METADATA_OPTIONS:
        command = add(command)
    return command.main(list(arguments), standalone_mode=False)


def test_options_of_the_command_line_are_llama_cpps():
    assert read() is None
    values = {"a": 1, "b": True, "c": "x,y", "d": 2.0}
    assert read("--override-kv", r"a=int:1,b=bool:true,c=str:x\,y", "--override-kv", "d=float:2") == values
    rope = ["--rope-scaling", "yarn", "--rope-freq-scale", "0.25", "--rope-freq-base", "1e6", "--yarn-orig-ctx", "64"]
    yarn = ["--yarn-ext-factor", "0", "--yarn-attn-factor", "-1", "--yarn-beta-fast", "16", "--yarn-beta-slow", "2"]
    assert read(*rope, *yarn) == {
        "*.rope.scaling.type": "yarn",
        "*.rope.scaling.factor": 4.0,
        "*.rope.freq_base": 1e6,
        "*.rope.scaling.original_context_length": 64,
        "*.rope.scaling.yarn_ext_factor": 0.0,
        "*.rope.scaling.yarn_beta_fast": 16.0,
        "*.rope.scaling.yarn_beta_slow": 2.0,
    }
    assert read("--rope-scale", "2", "--override-kv", "*.rope.scaling.factor=float:3") == {"*.rope.scaling.factor": 3.0}


@pytest.mark.parametrize("item", ["a", "a=1", "a=int:x", "a=bool:1", "a=long:1", "=int:1"])
def test_a_wrong_override_is_refused(item):
    with pytest.raises(click.BadParameter):
        read("--override-kv", item)


def test_cached_prompts_are_those_of_the_same_values(file, monkeypatch):
    hashed = []
    monkeypatch.setattr(tiers, "identity_of", lambda *facts: hashed.append(identity_of(*facts)) or hashed[-1])
    for override_kv in ({}, {"*.rope.freq_base": 5e5}, {"*.rope.freq_base": 5e5}):
        pumice.load(file, backend="numpy", cache_ram=1, override_kv=override_kv).close()
    assert hashed[0] != hashed[1] == hashed[2]
