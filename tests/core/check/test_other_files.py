"""Files that are no models for texts, and files of nothing: a line says what they are, without a false alarm."""

import numpy as np
import pytest

from adapters import ATTENTION, write_adapter
from control_vectors import write_control_vector
from pumice.check import check
from pumice.config import load_config
from pumice.demo import demo_model_path
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, Writer
from pumice.gguf.copy import encoded_metadata
from pumice.registry import get_registry
from tiny_t5 import MODELS
from tiny_zoo import ZOO
from vision_files import write_projector


def lora(path):
    write_adapter(path, ZOO["llama-bias"], ATTENTION)


def control_vector(path):
    write_control_vector(path, [np.ones(64)])


def projector(path):
    write_projector(path, "mlp")


def encoder_decoder(path):
    MODELS["t5"].write(path)


def demo(path, tensors=True, **changes):
    """Write the demo model with other metadata; None drops a key, and 'tokenizer' all keys that begin so."""
    with GGUFFile.open(demo_model_path()) as file:
        dropped = tuple(key.replace("__", ".") for key, value in changes.items() if value is None)
        kept = {key: value for key, value in encoded_metadata(file.metadata).items() if not key.startswith(dropped)}
        kept |= {key.replace("__", "."): value for key, value in changes.items() if value is not None}
        used = file.tensors if tensors else {}
        with Writer(path, kept, [TensorInfo(name, t.type, t.shape) for name, t in used.items()]) as writer:
            for tensor in used.values():
                writer.write(tensor.data)


def without_tensors(path):
    demo(path, tensors=False)


def without_tokenizer(path):
    demo(path, tokenizer=None)


NOTES = {
    lora: "LoRA adapter",
    control_vector: "control vector",
    projector: "projector",
    encoder_decoder: "encoder",
    without_tensors: "without tensors",
    without_tokenizer: "without a tokenizer",
}


@pytest.mark.parametrize("write", NOTES, ids=lambda write: write.__name__)
def test_what_cannot_predict_texts_is_named(write, tmp_path):
    path = tmp_path / "file.gguf"
    write(path)
    [finding] = check(path, get_registry(load_config({})), {"backend": "cpu"})
    assert (finding.level, finding.subject) == ("note", "file")
    assert NOTES[write] in finding.message


def test_an_adapter_is_checked(tmp_path):
    path = tmp_path / "adapter.gguf"
    with Writer(
        path,
        {"general.type": "adapter", "general.architecture": "llama"},
        [TensorInfo("blk.0.attn_q.weight.lora_a", GGMLType.F32, (3, 64))],
    ) as writer:
        writer.write(np.full((3, 64), np.nan, np.float32))
    findings = list(check(path, get_registry(load_config({})), {}))
    assert [finding.level for finding in findings] == ["error"]
    assert "nan" in findings[0].message


@pytest.mark.parametrize("change", [{"general__architecture": None}, {"general__architecture": 7}])
def test_a_file_without_an_architecture(change, tmp_path):
    demo(tmp_path / "file.gguf", **change)
    [finding] = check(tmp_path / "file.gguf", get_registry(load_config({})), {})
    assert (finding.level, finding.subject) == ("error", "general.architecture")


def test_an_unknown_architecture(tmp_path):
    demo(tmp_path / "file.gguf", general__architecture="frobnicator")
    [finding] = check(tmp_path / "file.gguf", get_registry(load_config({})), {})
    assert (finding.level, finding.subject) == ("error", "general.architecture")
    assert "unknown architecture 'frobnicator'" in finding.message
