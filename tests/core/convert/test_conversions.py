"""Checkpoints of every family: transformers' logits, and llama.cpp's converter's files."""

import hashlib
import json

import numpy as np
import pytest

import pumice
from checkpoints import FIXTURES, N_GREEDY, PROMPT, PROMPTS, ROWS, checkpoint_of, weights, write_safetensors
from make_fixtures import families
from nightly import variants
from pumice.config import load_config
from pumice.convert import ConvertOptions
from pumice.gguf import GGMLType
from pumice.model_files.opening import check_model, open_model
from pumice.registry import get_registry
from reference_models import error

CASES = json.loads((FIXTURES / "cases.json").read_text())
LOGITS = np.load(FIXTURES / "logits.npz")
VARIANTS = json.loads((FIXTURES / "variants.json").read_text())  # other values of configurations
LIMITS = {"falcon-mamba": 1e-4}
KNOWN_TO_LLAMA_CPP = json.loads((FIXTURES.parent / "llama_architectures.json").read_text())
UNKNOWN = {n for n in LOGITS.files if families.architecture_of(CASES[n]["config"]) not in KNOWN_TO_LLAMA_CPP}
# Numbers that go through an exponential, whose last bit depends on the library.
INEXACT = (".ssm_a",)
# Keys that llama.cpp does not have.
OURS = (".attention.inner_norm_rms_epsilon", ".rope.scaling.yarn_truncate")
# Models without a chat template, or with the name of one, for which theirs writes one of its own.
THEIR_TEMPLATES = ("rwkv", "kimi-k3", "minimax-01", "deepseek4", "dspark-deepseek4")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")

    def make(name):
        return root / name if (root / name).exists() else checkpoint_of(root / name, CASES[name])

    return make


@pytest.mark.parametrize("name", sorted({*LOGITS.files} - UNKNOWN))
def test_logits_are_transformers(checkpoint, name):
    assert error_of(checkpoint(name), name, backend="numpy") < 1e-4


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_of_other_configurations(tmp_path, name):
    checkpoint_of(tmp_path / name, CASES[name], **VARIANTS[name])
    expected = np.load(FIXTURES / "variants.npz")[name].astype(np.float32)
    with pumice.load(tmp_path / name, backend="numpy", kv_type="f32", n_ctx=64) as model:
        logits = model.logits(PROMPT)[-1]
    assert error(logits[None], expected[None]) < LIMITS.get(name, 1e-5)


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_logits_of_families_that_llama_cpp_does_not_know(checkpoint, name):
    """Read a prompt in parts."""
    assert error_of(checkpoint(name), name, backend="numpy", n_batch=5) < 1e-6


@pytest.mark.parametrize("name", variants(sorted(UNKNOWN), ["biogpt", "jetmoe", "olmo-hybrid", "zaya"]))
def test_logits_of_these_families_on_the_cpu(checkpoint, name):
    """It rounds to bfloat16, as the weights are."""
    assert error_of(checkpoint(name), name, backend="cpu") < 1e-4


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "greedy" in case])
def test_greedy_texts_are_transformers(checkpoint, name):
    """Several at once, whose prompts are read in parts, from a cache that transformers' texts do not use."""
    options = {"backend": "numpy", "kv_type": "f32", "n_ctx": 128, "n_parallel": len(PROMPTS)}
    with pumice.load(checkpoint(name), n_batch=7, **options) as model:
        texts = model.generate_many(PROMPTS, max_tokens=N_GREEDY, temperature=0)
    for text, expected in zip(texts, CASES[name]["greedy"], strict=True):
        ids = list(text.tokens)
        assert ids == expected[: len(ids)]
        assert len(ids) == N_GREEDY or text.finish_reason == "stop"


def error_of(path, name, **options):
    with pumice.load(path, kv_type="f32", n_ctx=64, **options) as model:
        logits = model.logits(PROMPT)[ROWS]
    return error(logits, LOGITS[name].astype(np.float32))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["theirs"]])
def test_a_file_is_llama_cpps(checkpoint, name):
    theirs = CASES[name]["theirs"]
    type = CASES[name].get("type")
    quantizer = get_registry(load_config()).quantizers[type] if type else None
    target = checkpoint(CASES[name]["target"]) if "target" in CASES[name] else None
    options = ConvertOptions(GGMLType[type] if type else None, quantizer=quantizer, target=target)
    with open_model(checkpoint(name), options=options) as file:
        ours = {key: described(file.metadata.encoded(key)) for key in file.metadata}
        tensors = {
            key: [tensor.type.name, list(tensor.shape), hashlib.sha256(tensor.data).hexdigest()[:16]]
            for key, tensor in file.tensors.items()
        }
    ours = {key: value for key, value in ours.items() if not key.endswith(OURS)}
    for metadata in (ours, theirs["metadata"]):
        metadata.pop("tokenizer.ggml.pre", None)  # theirs was told one
    if "general.file_type" not in theirs["metadata"]:  # MPT's, which theirs forgets
        del ours["general.file_type"]
    if name.startswith(THEIR_TEMPLATES):
        theirs["metadata"].pop("tokenizer.chat_template", None)
        ours.pop("tokenizer.chat_template", None)
    if name in ("qwen3asr", "qwen3omni"):  # theirs looks for the end of a turn where older files have it
        for key in ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"):
            del ours[key], theirs["metadata"][key]
    if name == "qwen3omni":  # theirs leaves out the rows of images for further layers
        assert theirs["metadata"].pop("qwen3vlmoe.n_deepstack_layers") != ours.pop("qwen3vlmoe.n_deepstack_layers")
    if name == "qwen3tts":  # theirs writes the end of sounds, and then that of text over it
        del ours["tokenizer.ggml.eos_token_id"], theirs["metadata"]["tokenizer.ggml.eos_token_id"]
    if name == "qwen4exp":  # theirs misses attention by the name that transformers gives it
        del ours["qwen4exp.attention.compress_ratios"], theirs["metadata"]["qwen4exp.attention.compress_ratios"]
    if name == "cogvlm":  # theirs leaves out the matrices for images, without which llama.cpp does not load the file
        assert theirs["metadata"].pop("general.size_label") != ours.pop("general.size_label")
        visual = {key for key in tensors if ".vis_" in key}
        assert len(visual) == 5 * CASES[name]["config"]["num_hidden_layers"]
        tensors = {key: tensor for key, tensor in tensors.items() if key not in visual}
    if name == "chatglm":  # theirs takes 1e-5
        key = "chatglm.attention.layer_norm_rms_epsilon"
        assert theirs["metadata"].pop(key) != ours.pop(key)
    if name == "mimo2":  # theirs leaves out the factor of experts, which is 1 in published models
        del ours["mimo2.expert_weights_scale"]
    if name == "t5":  # theirs leaves out the factor of hidden states before tied embeddings
        key = "dec.output_norm.weight"
        assert theirs["tensors"].pop(key) != tensors.pop(key)
    if name == "internlm2":  # theirs says what goes without saying
        del theirs["metadata"]["tokenizer.ggml.add_space_prefix"]
    assert ours == theirs["metadata"]
    for key, tensor in tensors.items():
        same = tensor[:2] if key.endswith(INEXACT) else tensor
        assert same == theirs["tensors"][key][: len(same)], key
    assert tensors.keys() == theirs["tensors"].keys()


@pytest.mark.parametrize("name", [name for name in CASES if name not in LOGITS.files])
def test_a_model_has_what_its_architecture_needs(checkpoint, name):
    target = checkpoint(CASES[name]["target"]) if "target" in CASES[name] else None
    with open_model(checkpoint(name), options=ConvertOptions(target=target)) as file:
        check_model(file, target=target)


@pytest.mark.parametrize("model", ["BaichuanForCausalLM", "XverseForCausalLM"])
def test_matrices_are_llamas(tmp_path, model):
    """llama.cpp's converter fails with these families; their matrices are Llama's, three of which Baichuan joins."""
    case = CASES["llama"]
    assert case["tokenizer"] == "spm"
    config = case["config"] | {"num_key_value_heads": case["config"]["num_attention_heads"]}
    square = [config["hidden_size"]] * 2
    tensors = {name: weights(name, square if "self_attn" in name else shape) for name, shape in case["shapes"].items()}
    theirs = dict(tensors)
    for i in range(config["num_hidden_layers"] if model.startswith("Baichuan") else 0):
        parts = [theirs.pop(f"model.layers.{i}.self_attn.{part}_proj.weight") for part in "qkv"]
        theirs[f"model.layers.{i}.self_attn.W_pack.weight"] = np.concatenate(parts)
    files = []
    for name, arrays in (("LlamaForCausalLM", tensors), (model, theirs)):
        folder = checkpoint_of(tmp_path / name, case | {"shapes": {}}, **config | {"architectures": [name]})
        write_safetensors(folder / "model.safetensors", arrays)
        with open_model(folder) as file:
            check_model(file)
            files.append({each: tensor.data.tobytes() for each, tensor in file.tensors.items()})
    assert files[0] == files[1]


def test_tokens_that_an_output_matrix_lacks_are_not_chosen(checkpoint, tmp_path):
    case, n_rows = CASES["apertus15"], 400
    shapes = case["shapes"] | {"lm_head.weight": [n_rows, case["config"]["hidden_size"]]}
    pruned = checkpoint_of(tmp_path / "pruned", case | {"shapes": shapes}, output_vocab_size=n_rows)
    options = {"max_tokens": 96, "temperature": 9.0, "samplers": ["temperature", "dist"], "seed": 1}
    logits, highest = [], []
    for path in (checkpoint("apertus15"), pruned):
        with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=128) as model:
            logits.append(model.logits(PROMPT)[:, :n_rows])
            highest.append(max(model.generate(PROMPT, **options).tokens))
    np.testing.assert_allclose(logits[1], logits[0], atol=1e-6)
    assert highest[0] >= n_rows > highest[1]


def test_blocks_of_dory_may_be_layers_of_their_own(checkpoint, tmp_path):
    case = CASES["dory"]
    folder = checkpoint_of(tmp_path / "dory", case | {"shapes": {}})
    own = {"self_attn": (0, "mixer"), "mlp": (1, "mixer"), "lambda_1": (0, "attn_alpha"), "lambda_2": (1, "mlp_alpha")}
    tensors = {}
    for name, shape in case["shapes"].items():
        parts = name.split(".")
        if parts[1] == "layers":
            second, parts[3] = own[parts[3]]
            parts[2] = str(2 * int(parts[2]) + second)
        tensors[".".join(parts)] = weights(name, shape)
    write_safetensors(folder / "model.safetensors", tensors)
    with open_model(checkpoint("dory")) as merged, open_model(folder) as split:
        assert {key: tensor.data.tobytes() for key, tensor in merged.tensors.items()} == {
            key: tensor.data.tobytes() for key, tensor in split.tensors.items()
        }


def described(value):
    """As in make_fixtures/conversions.py."""
    data = value.data.hex() if len(value.data) <= 64 else hashlib.sha256(value.data).hexdigest()[:16]
    return f"{value.type_name} {data}"
