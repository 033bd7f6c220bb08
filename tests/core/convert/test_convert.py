"""Folders that cannot be converted, and the command."""

import json
import math
import re
import subprocess
import sys
from itertools import product
from types import SimpleNamespace

import click
import numpy as np
import pytest
from click.testing import CliRunner

import pumice
import pumice.convert
from checkpoints import FIXTURES, PROMPT, checkpoint_of, weights, write_checkpoint, write_safetensors
from make_fixtures.read_keys import UNREAD, read_keys
from nightly import variants
from pumice.cli import cli
from pumice.config import load_config
from pumice.convert import ConvertOptions, LazyTensor
from pumice.convert.converted import ConvertedTensor
from pumice.convert.safetensors import TYPES, read_safetensors
from pumice.convert.written import general_metadata
from pumice.errors import ConvertError
from pumice.gguf import GGMLType, GGUFFile
from pumice.model_files.opening import check_model, open_model
from pumice.model_graphs import make_architecture
from pumice.registry import get_registry
from pumice.tracing import trace

CASES = json.loads((FIXTURES / "cases.json").read_text())
CASE = CASES["llama-bpe"]


@pytest.fixture
def folder(tmp_path):
    return checkpoint_of(tmp_path / "Tiny-Llama-1B-Chat", CASE)


def run(*arguments):
    return CliRunner().invoke(cli, ["convert", *map(str, arguments)], catch_exceptions=False)


def set_config(folder, **values):
    (folder / "config.json").write_text(json.dumps({**CASE["config"], **values}))


# --- the command


def test_a_file_is_the_folder(folder, tmp_path):
    result = run(folder, "-o", tmp_path / "out.gguf")
    assert result.stdout.strip() == str(tmp_path / "out.gguf")
    with GGUFFile.open(tmp_path / "out.gguf") as file, open_model(folder) as made:
        assert dict(file.metadata)["general.architecture"] == "llama"
        assert {key: file.metadata.encoded(key) for key in file.metadata} == {
            key: made.metadata.encoded(key) for key in made.metadata
        }
        for name, tensor in made.tensors.items():
            assert tensor.data.tobytes() == file.tensors[name].data.tobytes()
    with pumice.load(tmp_path / "out.gguf", n_ctx=32) as one, pumice.load(folder, n_ctx=32) as other:
        assert (one.logits(PROMPT) == other.logits(PROMPT)).all()


def test_numbers_beyond_float16_are_not_lost(folder):
    tensors = {name: weights(name, shape) for name, shape in CASE["shapes"].items()}
    tensors["model.layers.1.mlp.up_proj.weight"][3, 3] = 1e6
    write_safetensors(folder / "model.safetensors", tensors)
    with pytest.raises(ConvertError, match=r"1\.ffn_up\.weight' has values too large for F16; choose --type bf16"):
        run(folder, "--type", "f16")
    assert not list(folder.glob("*.gguf"))
    assert run(folder).exit_code == 0


@pytest.mark.parametrize(("type", "most"), [("TQ2_0", 7e4), ("Q8_0", 1e7)])
def test_numbers_too_large_for_a_types_scales(type, most):
    quantizer = get_registry(load_config()).quantizers[type]
    lazy = LazyTensor.of(np.full((1, 256), most, np.float32))
    tensor = ConvertedTensor("x.weight", GGMLType[type], lazy, quantizer)
    with pytest.raises(ConvertError, match=f"'x.weight' has values too large for {type}; choose --type bf16 or f32"):
        tensor.dequantize()
    fits = ConvertedTensor("x.weight", GGMLType[type], LazyTensor.of(lazy.read() * 0.8), quantizer)
    assert np.isfinite(fits.dequantize()).all()


def test_names_and_metadata_that_are_given(folder, tmp_path):
    given = {"general.author": "Ada", "general.name": "Other", "general.license": "mit"}
    (tmp_path / "more.json").write_text(json.dumps(given))
    run(folder, "-o", tmp_path / "out.gguf", "--model-name", "Stone", "--metadata", tmp_path / "more.json")
    with GGUFFile.open(tmp_path / "out.gguf") as file:
        assert (file.metadata["general.name"], file.metadata["general.author"]) == ("Stone", "Ada")
        assert file.metadata["general.license"] == "mit"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Once", "more.json: not valid JSON"),
        ("[1]", "more.json: expected a JSON object"),
        ('{"general.athor": "Ada"}', "no key that a conversion takes; did you mean 'general.author'"),
        ('{"general.architecture": "llama"}', "'general.architecture' is no key"),
        ('{"general.author": {"a": 1}}', "metadata key 'general.author': {'a': 1} is not a value of type str"),
    ],
)
def test_metadata_without_effect_is_refused(folder, tmp_path, text, message):
    (tmp_path / "more.json").write_text(text)
    with pytest.raises(ConvertError, match=re.escape(message)):
        run(folder, "-o", tmp_path / "out.gguf", "--metadata", tmp_path / "more.json")
    assert not (tmp_path / "out.gguf").exists()


def test_a_model_without_a_projector(folder, tmp_path):
    with pytest.raises(ConvertError) as error:
        run(folder, "--mmproj")
    assert str(error.value).endswith(
        "models of class 'LlamaForCausalLM' have no projector to convert; docs/media_types.md lists models with one"
    )
    done = run(folder, "-o", tmp_path / "out.gguf", "--base", folder)
    assert (done.exit_code, "--base is for LoRA adapters" in done.stderr) == (2, True)


def test_the_vocabulary_alone(folder):
    written = run(folder, "--vocab-only").stdout.strip()
    assert written == str(folder / "Tiny-Llama-Chat-vocab.gguf")
    with GGUFFile.open(written) as file, open_model(folder) as made:
        assert not file.tensors
        assert file.metadata["llama.block_count"] == 2
        assert list(file.metadata["tokenizer.ggml.tokens"]) == list(made.metadata["tokenizer.ggml.tokens"])
    assert pumice.load_tokenizer(written).tokenize("a token") == pumice.load_tokenizer(folder).tokenize("a token")


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--vocab-only"]])
def test_an_unknown_type_is_refused_before_a_folder_is_read(folder, more):
    (folder / "config.json").write_text("no JSON")
    with pytest.raises(pumice.QuantizeError, match="unknown type 'FOO'"):
        run(folder, "--type", "foo", *more)


@pytest.mark.parametrize("type", ["auto", "q8_0"])
def test_in_parts(folder, tmp_path, type):
    whole, parts = tmp_path / "whole.gguf", tmp_path / "parts.gguf"
    run(folder, "-o", whole, "--type", type)
    paths = run(folder, "-o", parts, "--type", type, "--split-max-tensors", 8).stdout.split()
    assert [path.rpartition("/")[2] for path in paths] == [f"parts-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    with GGUFFile.open(whole) as one, GGUFFile.open(paths[0]) as other:
        assert {name: t.data.tobytes() for name, t in one.tensors.items()} == {
            name: t.data.tobytes() for name, t in other.tensors.items()
        }
    assert len(run(folder, "-o", parts, "--split-max-size", "20K").stdout.split()) > 3
    with pytest.raises(click.UsageError, match="either --split-max-size or --split-max-tensors"):
        CliRunner().invoke(
            cli, ["convert", str(folder), "--split-max-size", "1K", "--split-max-tensors", "1"], standalone_mode=False,
            catch_exceptions=False,
        )  # fmt: skip


def test_further_tokens_that_end_and_the_template_beside_the_tokenizer(folder):
    tokens = json.loads((folder / "tokenizer.json").read_text())
    added = {token["content"]: token["id"] for token in tokens["added_tokens"]}
    stop = {**tokens["added_tokens"][0], "id": CASE["config"]["vocab_size"] - 1, "content": "<stop>"}
    (folder / "tokenizer.json").write_text(json.dumps({**tokens, "added_tokens": [*tokens["added_tokens"], stop]}))
    ids = [added["<|endoftext|>"], added["<|im_end|>"], stop["id"]]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": "of the configuration"}))
    (folder / "chat_template.jinja").write_text("{{ 'of the file' }}")
    with open_model(folder) as file:
        assert file.metadata["tokenizer.ggml.eot_token_id"] == stop["id"]
        assert file.metadata["tokenizer.chat_template"] == "{{ 'of the file' }}"
    assert {stop["id"], added["<|im_end|>"]} <= pumice.load_tokenizer(folder).eog
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ConvertError, match="its files are not understood: UnicodeDecodeError"):
        open_model(folder)


# --- what is wrong with a folder


def test_methods_of_quantizing_that_cannot_be_undone(folder):
    set_config(folder, quantization_config={"quant_method": "awq"})
    with pytest.raises(ConvertError, match=r"unknown quantization method 'awq'; only bitnet"):
        open_model(folder)
    set_config(folder, quantization_config={"quant_method": "gptq", "bits": 3})
    with pytest.raises(ConvertError, match=r"do not fit the method 'gptq': unsupported width of 3 bits"):
        open_model(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architectures": None}, r"config\.json: 'architectures' is missing"),
        ({"architectures": ["NobodyForCausalLM"]}, "models of class 'NobodyForCausalLM' cannot be converted"),
        ({"num_hidden_layers": "2"}, "'n_layers' is '2', expected an integer"),
        ({"num_hidden_layers": 3}, r"blk\.2\.attn_norm\.weight is missing"),
        ({"num_hidden_layers": 1}, "unknown tensor 'model.layers.1.input_layernorm.weight' for architecture llama"),
        ({"num_attention_heads": 3}, "tensor .* does not fit the configuration"),
        ({"hidden_size": 64}, "has shape"),
        ({"num_hidden_layers": 10**9}, "'n_layers' is 1000000000, expected an integer from 1 to 1024"),
        ({"vocab_size": 10**9}, "a vocabulary of 1000000000 tokens exceeds the limit"),
        ({"hidden_size": 10**30}, "'hidden_size' is 10{30}, expected an integer of at least 0"),
        ({"head_dim": 10**9}, "a head dimension of 1000000000 exceeds the limit of 65536"),
        ({"head_dim": [8]}, r"'head_dim' is \[8\], expected an integer"),
        ({"rope_parameters": {"rope_theta": "10000"}}, "'rope_theta' is '10000', expected a number"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": []}}, "is not understood, perhaps since '.*' is .*: "),
        ({"rms_norm_eps": "tiny"}, "'rms_norm_eps' is 'tiny', expected a number"),
    ],
)
def test_configurations_that_do_not_fit(folder, values, message):
    set_config(folder, **values)
    with pytest.raises(pumice.PumiceError, match=message), open_model(folder) as file:
        check_model(file)


@pytest.mark.parametrize("case", ["llama-bpe", "llama"])
@pytest.mark.parametrize("said", [410, 420, None])
def test_there_is_a_token_for_each_row_of_the_embeddings(tmp_path, caplog, case, said):
    with open_model(changed(tmp_path, case, vocab_size=said)) as file:
        check_model(file)
        assert len(file.metadata["tokenizer.ggml.tokens"]) == 424 == len(file.tensors["token_embd.weight"].data)
        assert list(file.metadata["tokenizer.ggml.token_type"])[-4:] == [5, 5, 5, 5]
    assert f"{said or 420} tokens, but the embeddings have 424 rows" in caplog.text


@pytest.mark.parametrize("kind", ["dynamic", "longrope2", "yarn", "llama3", "linear", "default"])
def test_rope_scaling_that_is_not_converted_is_told(tmp_path, caplog, kind):
    """A file says what the scaling is, or a warning that there is none. YaRN and linear scaling need a factor."""
    for factor in ({}, {"factor": 4.0, "original_max_position_embeddings": 64}):
        folder = changed(tmp_path / f"m{len(factor)}", "llama", rope_parameters={"rope_type": kind, **factor})
        caplog.clear()
        with open_model(folder) as file:
            scaled = "llama.rope.scaling.type" in file.metadata or "rope_freqs.weight" in file.tensors
        assert scaled == (kind == "llama3" or (bool(factor) and kind in ("yarn", "linear")))
        assert (f"RoPE scaling of type '{kind}' is not converted" in caplog.text) == (not scaled and kind != "default")


@pytest.mark.parametrize("name", ["command-r", "cohere2", "qwen3"])
def test_scaling_that_a_family_drops_is_told(tmp_path, caplog, name):
    rope = {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    rope["rope_theta"] = 10000.0
    with open_model(changed(tmp_path, name, rope_parameters=rope)):
        assert "RoPE scaling of type 'longrope' is not converted" in caplog.text


def test_a_magnitude_of_yarn_takes_the_place_of_its_own(tmp_path):
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.3}
    for case in ("llama", "qwen3"):
        (node, *_) = nodes_of(changed(tmp_path / case, case, rope_parameters=rope), "rope")
        assert node.attrs["magnitude"] == pytest.approx(1.3)


@pytest.mark.parametrize("name", ["afmoe", "cohere2", "gemma2", "gemma3", "gpt-oss"])
def test_any_layers_may_have_windows(tmp_path, name):
    for kinds in product(("full_attention", "sliding_attention"), repeat=2):
        folder = changed(tmp_path / "".join(kinds), name, layer_types=kinds)
        windows = [bool(node.attrs["window"]) for node in nodes_of(folder, "attention")]
        assert windows == [kind == "sliding_attention" for kind in kinds]
        if name in ("afmoe", "cohere2"):  # positions of queries and keys in these layers alone
            assert len(nodes_of(folder, "rope")) == 2 * sum(windows)


def test_qwen35_without_attention_has_no_positions_to_turn(tmp_path):
    shapes = {name: shape for name, shape in CASES["qwen35"]["shapes"].items() if ".layers.1." not in name}
    values = {"num_hidden_layers": 1, "layer_types": ["linear_attention"]}
    with pumice.load(changed(tmp_path, "qwen35", shapes, **values), backend="numpy") as model:
        assert np.isfinite(model.logits(PROMPT)).all()


def test_experts_of_qwen3vlmoe_are_columns_or_as_transformers_stores_them_rows(tmp_path):
    columns = CASES["qwen3vlmoe"]["shapes"]
    rows = {name: [shape[0], *shape[:0:-1]] if ".experts." in name else shape for name, shape in columns.items()}
    assert rows != columns
    sizes = []
    for name, shapes in (("columns", columns), ("rows", rows)):
        with open_model(changed(tmp_path / name, "qwen3vlmoe", shapes)) as file:
            sizes.append({name: tensor.shape for name, tensor in file.tensors.items()})
    assert sizes[0] == sizes[1]


def test_dense_layers_of_kimi_linear_may_have_the_name_of_experts(tmp_path):
    shapes = CASES["kimi-linear"]["shapes"]
    own = {name: shape for name, shape in shapes.items() if ".layers.0.block_sparse_moe." not in name}
    sizes = {"gate": [48, 32], "up": [48, 32], "down": [32, 48]}
    own |= {f"model.layers.0.block_sparse_moe.{part}_proj.weight": shape for part, shape in sizes.items()}
    with open_model(changed(tmp_path, "kimi-linear", own, first_k_dense_replace=1)) as file:
        assert {part: list(file.tensors[f"blk.0.ffn_{part}.weight"].shape) for part in sizes} == sizes


@pytest.mark.parametrize("name", ["mistral", "mixtral", "mistral3", "starcoder2"])
def test_all_layers_have_the_window_of_a_configuration(tmp_path, name):
    for window in (None, 5):
        nodes = nodes_of(changed(tmp_path / str(window), name, sliding_window=window), "attention")
        assert {node.attrs["window"] for node in nodes} == {window or 0}


HALF = {"partial_rotary_factor": 0.5}


@pytest.mark.parametrize(
    ("name", "values"),
    [(name, {"hidden_act": "relu"}) for name in ("llama", "arcee", "qwen3", "exaone4", "olmo2", "glm4", "starcoder2")]
    + [("qwen3moe", {"norm_topk_prob": False}), ("olmoe", {"norm_topk_prob": True})]
    + [("glm4moelite", {"rope_interleave": False})]
    + [("afmoe", {"mup_enabled": False}), ("ernie4_5", {"use_bias": True}), ("smollm3", {"no_rope_layers": [1, 0]})]
    + [("afmoe", {"mup_enabled": None}), ("gpt2", {"activation_function": "relu"}), ("falcon", {"activation": "relu"})]
    + [("mellum", {"norm_topk_prob": False}), ("lfm3", {"conv_bias": True}), ("llama4", {"use_qk_norm": False})]
    + [("gemma3", {"hidden_activation": "relu"}), ("gemma3", {"use_bidirectional_attention": True})]
    + [("exaone4", {"rope_parameters": {"sliding_attention": {"rope_type": "yarn", "factor": 4.0}}})]
    + [("deepseek3", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.5, "mscale_all_dim": 1.0}})]
    + [("mamba2", {"time_step_limit": [0.01, 1.0]}), ("falcon-h1", {"attention_bias": True})]
    + [("granite_swa", {"layer_rope_theta": [10000.0, 500000.0]})]
    + [("qwen2moe", {"layer_types": ["sliding_attention", "full_attention"]})]
    + [("bloom", {"apply_residual_connection_post_layernorm": True})]
    + [("mimo2", {"norm_topk_prob": False}), ("dots3note", {"scoring_func": "softmax"})]
    + [("t5", {"is_gated_act": True}), ("minimax-m3-transformers", {"layer_types": ["minimax_m3_sparse"] * 2})]
    + [("minimax-m3", {"layer_types": ["full_attention"] * 2})]
    + [("zaya", {"rope_parameters": {"hybrid": HALF | {"partial_rotary_factor": 1.0}, "hybrid_sliding": HALF}})]
    + [("deepseek4-transformers", {"rope_parameters": {"main": {"partial_rotary_factor": 1.0}, "compress": {}}})],
)
def test_what_a_familys_graph_does_not_have_is_refused(tmp_path, name, values):
    (key,) = values
    with pytest.raises(ConvertError, match=f"unsupported '{key}'"):
        open_model(changed(tmp_path, name, **values))


@pytest.mark.parametrize(
    ("name", "flag", "tensor"),
    [
        ("llama-bias", "attention_bias", "model.layers.0.self_attn.k_proj.bias"),
        ("jais2", "mlp_bias", "model.layers.0.mlp.down_proj.bias"),
        ("falcon-mamba", "use_conv_bias", "backbone.layers.0.mixer.conv1d.bias"),
        ("glm4moe", "use_qk_norm", "model.layers.0.self_attn.k_norm.weight"),
        ("opt", "enable_bias", "model.decoder.layers.0.fc1.bias"),
    ],
)
def test_tensors_that_a_flag_denies_are_refused(tmp_path, name, flag, tensor):
    with pytest.raises(ConvertError, match=f"'{flag}' is false, but the checkpoint has '{tensor}'"):
        open_model(changed(tmp_path, name, **{flag: False}))


def test_defaults_have_all_keys_that_conversions_read():
    """transformers' classes have these keys, too; ``make fixtures NAME=usual`` adds what is read since then."""
    assert not read_keys() & set(json.loads(UNREAD.read_text()))


@pytest.mark.parametrize(
    ("name", "key"),
    [("qwen3moe", "norm_topk_prob"), ("nemotron_h", "norm_topk_prob"), ("deepseek2", "n_shared_experts")]
    + [(name, "rope_parameters") for name in ("gpt-oss", "mixtral", "olmo3", "longcat-flash", "modern-bert")]
    + [(name, "routed_scaling_factor") for name in ("deepseek4", "kimi-linear")]
    + [("dots3note", "norm_topk_prob")]
    + [("afmoe", "mup_enabled"), ("granitehybrid", "attention_multiplier"), ("chatglm", "rms_norm_eps")],
)
def test_what_transformers_has_another_default_for_must_be_said(tmp_path, name, key):
    config = {name: value for name, value in CASES[name]["config"].items() if name not in (key, "model_type")}
    folder = checkpoint_of(tmp_path / name, CASES[name] | {"config": config})
    with pytest.raises(ConvertError, match=f"'{key.replace('parameters', 'theta')}' is missing"):
        open_model(folder)


@pytest.mark.parametrize(
    ("family", "model", "section", "expected"),  # of published configurations, and transformers' defaults
    [
        ("gemma3", "Gemma3", {"model_type": "gemma3_text", "num_hidden_layers": 34}, [34, 2304, 8, 4]),
        ("llama", "Llava", {"model_type": "llama", "num_attention_heads": 40}, [32, 4096, 40, None]),
        ("llama", "Llava", {"model_type": "mistral", "hidden_size": 5120, "num_hidden_layers": 40}, [40, 5120, 32, 8]),
        ("qwen2", "Qwen2Audio", {"model_type": "qwen2", "intermediate_size": 11008}, [32, 4096, 32, 32]),
    ],
)
def test_sections_may_leave_out_what_is_usual(tmp_path, family, model, section, expected):
    config = {"architectures": [f"{model}ForConditionalGeneration"], "text_config": section | {"sliding_window": 1024}}
    folder = write_checkpoint(tmp_path / "m", config, {}, CASES[family]["tokenizer"])
    with open_model(folder, options=ConvertOptions(vocab_only=True)) as file:
        keys = ("block_count", "embedding_length", "attention.head_count", "attention.head_count_kv")
        assert [file.metadata.get(f"{family}.{key}") for key in keys] == expected


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, "rope_parameters") for name in ("lfm2", "modern-bert-decoder", "lfm3", "apertus", "gpt-oss")]
    + [("hyperclovax", "use_post_norm"), ("jais2", "layer_norm_eps"), ("qwen35", "linear_conv_kernel_dim")]
    + [("glm4moelite", "first_k_dense_replace"), ("bailing-hybrid", "moe_renormalize"), ("hy_v3", "rope_parameters")],
)
def test_configurations_may_leave_out_transformers_defaults(tmp_path, name, key):
    whole = CASES[name]["config"]
    files = []
    for folder, config in (("whole", whole), ("part", {name: value for name, value in whole.items() if name != key})):
        with open_model(checkpoint_of(tmp_path / folder / "m", CASES[name] | {"config": config})) as file:
            files.append({key: file.metadata.encoded(key) for key in file.metadata})
            files[-1] |= {name: tensor.data.tobytes() for name, tensor in file.tensors.items()}
    assert key in whole
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("name", "path", "key", "expected"),
    [
        ("qwen3vl", ("vision_config", "deepstack_visual_indexes"), "n_deepstack_layers", 3),
        ("qwen3asr", ("thinker_config", "text_config", "rope_scaling"), "rope.dimension_sections", [24, 20, 20, 0]),
    ],
)
def test_sections_of_media_may_leave_out_defaults(tmp_path, name, path, key, expected):
    config = json.loads(json.dumps(CASES[name]["config"])) | {"model_type": {"qwen3vl": "qwen3_vl"}.get(name)}
    section = config
    for part in path[:-1]:
        section = section[part]
    del section[path[-1]]
    folder = write_checkpoint(tmp_path / name, config, {}, CASES[name]["tokenizer"])
    with open_model(folder, options=ConvertOptions(vocab_only=True)) as file:
        value = file.metadata[f"qwen3vl.{key}"]
    assert value == expected if isinstance(expected, int) else list(value) == expected


@pytest.mark.parametrize(
    ("model", "kind", "expected"),
    [
        ("SmolVLM", "llama", "llama"),
        ("InternVL", "qwen2", "qwen2"),
        ("Lfm2Vl", "lfm2", "lfm2"),
        ("LlavaNext", "granite", "granite"),
    ],
)
def test_the_class_of_a_text_part_follows_from_its_type(tmp_path, model, kind, expected):
    name = f"{model}ForConditionalGeneration"
    section = {
        "model_type": kind,
        "layer_types": ["full_attention"] * 2,
        "num_hidden_layers": 2,
        "attention_multiplier": 1.0,
    }
    config = {"architectures": [name], "text_config": section}
    folder = write_checkpoint(tmp_path / "m", config, {}, CASES["qwen2"]["tokenizer"])
    with open_model(folder, options=ConvertOptions(vocab_only=True)) as file:
        assert file.metadata["general.architecture"] == expected
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["NobodyForCausalLM"]}))
    with pytest.raises(ConvertError, match="models of class 'NobodyForCausalLM' cannot be converted"):
        open_model(folder)


def test_the_class_says_that_mamba_has_falcons_norms(tmp_path):
    with open_model(changed(tmp_path, "falcon-mamba", model_type=None)) as file:
        assert file.metadata["mamba.ssm.dt_b_c_rms"] is True


def test_a_number_of_turned_values_that_transformers_does_not_read_is_refused(tmp_path):
    rope = {"rope_theta": 10000.0, "rope_type": "default"}
    with pytest.raises(ConvertError, match="'partial_rotary_factor' is missing"):
        open_model(changed(tmp_path, "minimax-m3-transformers", rope_parameters=rope, rotary_dim=8))


def test_null_is_no_default(tmp_path):
    with open_model(changed(tmp_path, "mistral", sliding_window=None)) as file:
        assert "llama.attention.sliding_window" not in file.metadata


@pytest.mark.parametrize("null", [{}, {"rope_scaling": None}, {"rope_parameters": None}])
def test_a_base_of_rope_leaves_the_default_scaling(tmp_path, null):
    config = {key: value for key, value in CASES["gpt-oss"]["config"].items() if key != "rope_parameters"}
    with open_model(
        checkpoint_of(tmp_path / "m", CASES["gpt-oss"] | {"config": config | null}, rope_theta=7777.0)
    ) as file:
        rope = [file.metadata[f"gpt-oss.rope.{key}"] for key in ("freq_base", "scaling.type", "scaling.factor")]
    assert rope == [7777.0, "yarn", 32.0]


def test_lfm2_may_number_its_layers_with_attention(tmp_path):
    kinds = CASES["lfm2"]["config"]["layer_types"]
    whole = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    counts = []
    for name, values in (("named", {}), ("numbered", {"layer_types": None, "full_attn_idxs": whole})):
        with open_model(changed(tmp_path / name, "lfm2", **values)) as file:
            counts.append(list(file.metadata["lfm2.attention.head_count_kv"]))
    assert counts[0] == counts[1]


def test_dots_names_sigmoid_after_its_routing(tmp_path):
    with open_model(changed(tmp_path, "dots1", scoring_func="noaux_tc")) as file:
        assert file.metadata["dots1.expert_gating_func"] == 2


def changed(folder, name, shapes=None, **values):
    """Write a family's checkpoint with other values in its configuration."""
    return checkpoint_of(folder / name, CASES[name] | {"shapes": shapes or CASES[name]["shapes"]}, **values)


def nodes_of(folder, op):
    with open_model(folder) as file:
        graph = trace(file, make_architecture(file, get_registry(load_config())), 64)["main"]
        return [node for node in graph.nodes if node.op == op]


@pytest.mark.parametrize(
    "name", variants(["deepseek4", "falcon-h1", "gemma4", "kimi-k3", "mpt", "step35"], ["falcon-h1", "gemma4", "mpt"])
)
def test_no_value_of_a_configuration_is_an_error_without_a_name(tmp_path, name):
    """Some families that read many values get each of them with wrong types."""
    config, folder = CASES[name]["config"], changed(tmp_path, name)
    refused = 0
    for key in config.keys() - {"architectures"}:
        for value in ([None], {"x": 1}):
            (folder / "config.json").write_text(json.dumps(config | {key: value}))
            try:
                with open_model(folder, options=ConvertOptions(vocab_only=True)):
                    pass
            except ConvertError as error:
                refused += str(folder) in str(error)
    assert refused > 8


def test_no_code_of_a_folder_is_run(folder, tmp_path):
    set_config(folder, auto_map={"AutoConfig": "modeling.Config", "AutoTokenizer": "modeling.Tokenizer"})
    (folder / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert run(folder, "--dry-run").exit_code == 0
    assert not (tmp_path / "ran").exists()


def test_folders_that_are_no_models(folder, tmp_path):
    with pytest.raises(ConvertError, match=r"the folder has no config\.json"):
        pumice.load(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConvertError, match=r"pytorch_model\.bin is not opened, since pickled files can run code"):
        pumice.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ConvertError, match="not valid JSON"):
        pumice.load(folder)
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(ConvertError, match="not valid JSON"):
        pumice.load(folder)


def test_several_files(folder):
    names = list(CASE["shapes"])
    tensors = {name: weights(name, shape) for name, shape in CASE["shapes"].items()}
    with open_model(folder) as file:
        whole = {name: tensor.data.tobytes() for name, tensor in file.tensors.items()}
    (folder / "model.safetensors").unlink()
    parts = {"model-1-of-2.safetensors": names[:9], "model-2-of-2.safetensors": names[9:]}
    for part, inside in parts.items():
        write_safetensors(folder / part, {name: tensors[name] for name in inside})
    index = {name: part for part, inside in parts.items() for name in inside}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with open_model(folder) as file:
        assert {name: tensor.data.tobytes() for name, tensor in file.tensors.items()} == whole
    for wrong, message in (
        (index | {"gone.weight": "model-1-of-2.safetensors"}, "1 tensors are missing, 'gone.weight' among them"),
        (index | {names[0]: "../model-1-of-2.safetensors"}, "is not the name of a file in the folder"),
        (index | {names[0]: "model-3-of-2.safetensors"}, "no such file"),
    ):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(ConvertError, match=message):
            open_model(folder)


# --- safetensors


def test_every_type_of_number(tmp_path):
    values = np.array([[0.5, -2.0], [3.0, 96.0]])
    for name, number in TYPES.items():
        if name.startswith("F8"):
            continue
        unsigned = name[0] == "U" or name == "BOOL"
        numbers = np.abs(values) if unsigned else values
        raw = (numbers.astype(np.float32).view(np.uint32) >> 16).astype("<u2") if name == "BF16" else numbers
        data = raw.astype(number.dtype).tobytes()
        header = json.dumps({"x": {"dtype": name, "shape": [2, 2], "data_offsets": [0, len(data)]}}).encode()
        (tmp_path / name).write_bytes(len(header).to_bytes(8, "little") + header + data)
        expected = numbers if name[0] in "BF" and name != "BOOL" else numbers.astype(number.dtype)
        assert (read_safetensors(tmp_path / name)["x"].read() == expected).all()


@pytest.mark.parametrize(
    ("name", "values"),  # some of torch's
    [
        ("F8_E4M3", {0x00: 0.0, 0x01: 2.0**-9, 0x08: 2.0**-6, 0x38: 1.0, 0x3B: 1.375, 0x7E: 448.0, 0xC4: -3.0}),
        ("F8_E5M2", {0x00: 0.0, 0x01: 2.0**-16, 0x3C: 1.0, 0x3F: 1.75, 0x7B: 57344.0, 0xC2: -3.0}),
        ("F8_E8M0", {0x7F: 1.0, 0x80: 2.0, 0x00: 2.0**-127}),
    ],
)
def test_floats_of_eight_bits(name, values):
    assert TYPES[name].numbers(np.array(list(values), np.uint8)).tolist() == list(values.values())


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "is empty|not a complete safetensors file"),
        (b"[]", "the header is not a JSON object"),
        (b"{ ", "the header is not valid JSON"),
        (b"[" * 50_000, "the header is not valid JSON"),
        (b'{"x": 3}', "its entry lacks dtype, shape or data_offsets"),
        (b'{"x": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}', "unknown type 'F4'; only F64"),
        (b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', r"4 bytes do not fit F32 \[2\]"),
        (b'{"x": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}', r"do not fit F32 \[-1\]"),
        (b'{"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}', "end of the file; is the file complete"),
        (b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}', "ends after the end of the file"),
        (b'{"x": {"dtype": "F32", "shape": ["a"], "data_offsets": [0, 4]}}', "its entry lacks"),
        (b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]}}', "its entry lacks"),
        (b'{"x": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}}', "its entry lacks"),
    ],
)
def test_broken_safetensors(tmp_path, header, message):
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8) if header else b"")
    with pytest.raises(ConvertError, match=message):
        read_safetensors(path)
    path.write_bytes((1 << 60).to_bytes(8, "little") + header)
    with pytest.raises(ConvertError, match="not a complete safetensors file"):
        read_safetensors(path)


# --- drafts, and what there is of models that make sounds


def test_a_draft_is_loaded_from_its_folder(tmp_path):
    options = {"draft": str(changed(tmp_path, "dflash"))}
    with pumice.load(changed(tmp_path, "qwen3"), config=options, n_ctx=32, backend="numpy") as model:
        assert model.logits(PROMPT).shape == (len(PROMPT), model.n_vocab)
    with pytest.raises(ConvertError, match="this is a draft model"):
        pumice.load(config=options)


def test_a_folder_without_a_configuration_is_recognised_or_refused(folder, tmp_path):
    with open_model(changed(tmp_path, "pockettts")) as file:
        assert file.architecture == "pockettts"
    (folder / "config.json").unlink()
    with pytest.raises(ConvertError, match=r"the folder has no config\.json; give a GGUF file or"):
        open_model(folder)


def test_tokens_without_a_row_are_named(tmp_path, caplog):
    folder = changed(tmp_path, "llama")
    (folder / "added_tokens.json").write_text(json.dumps({"<mine>": 424}))
    with open_model(folder) as file:
        assert len(file.metadata["tokenizer.ggml.tokens"]) == 424
    assert (
        "tokens of the tokenizer are left out, since the model has only 424; the first is 424, '<mine>'" in caplog.text
    )


def test_shapes_that_a_configuration_makes_infinite(tmp_path):
    tensor = SimpleNamespace(shape=(math.inf, 2), size=2)
    with pytest.raises(ConvertError, match="its files are not understood: OverflowError"):
        general_metadata(tmp_path, "llama", [("token_embd.weight", tensor)])


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process's memory")
def test_sizes_that_no_model_has_take_no_memory(tmp_path):
    """They are refused, or mean nothing to what is checked."""
    for name, values in {
        "gemma4": {"per_layer_config": {"1": {"head_dim": 10**9}}},
        "qwen4exp": {"split_ngram_parts": 10**9},
        "deepseek4": {"max_position_embeddings": 10**9},
        "hrm_text": {"H_cycles": 10**6},
    }.items():
        changed(tmp_path, name, **values)
    code = f"""
import resource
from pathlib import Path
from pumice.errors import ConvertError
from pumice.model_files.opening import check_model, open_model
from pumice.model_graphs import make_architecture
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
for folder in sorted(Path({str(tmp_path)!r}).iterdir()):
    try:
        with open_model(folder) as file:
            check_model(file)
    except ConvertError:
        print(folder.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["gemma4", "hrm_text", "qwen4exp"]


def test_pickles_of_a_draft_are_not_opened(tmp_path):
    folder = changed(tmp_path, "dflash")
    (folder / "mask_embedding.pt").write_bytes(b"")
    with pytest.raises(ConvertError, match=r"refusing to read mask_embedding\.pt: this format can run code"):
        open_model(folder)
