"""Editing files in place and by a copy."""

import os

import gguf
import pytest

from gguf_files import tiny_llama
from pumice.errors import GGUFError
from pumice.gguf import GGUFFile, encode
from pumice.gguf.edit import edit


@pytest.fixture
def model(tmp_path):
    return tiny_llama(tmp_path / "model.gguf")


def tensor_bytes(path):
    return {tensor.name: tensor.data.tobytes() for tensor in GGUFFile.open(path).tensors.values()}


def test_a_number_is_changed_in_place(model):
    before, inode = tensor_bytes(model), model.stat().st_ino
    assert not edit(model, values={"llama.context_length": encode(512)})
    assert model.stat().st_ino == inode
    assert gguf.GGUFReader(model).fields["llama.context_length"].contents() == 512
    assert tensor_bytes(model) == before


def test_tensors_that_lie_apart_are_not_moved_in_place(tmp_path):
    """Offsets in the header are those of a file without gaps; with gaps it must be copied."""
    import gguf_bytes as raw

    infos = [raw.tensor("a", [4], offset=0), raw.tensor("b", [4], offset=64)]
    data = bytes(range(64)) + bytes(range(64, 96))
    path = tmp_path / "m.gguf"
    path.write_bytes(raw.gguf([raw.entry("k", raw.U8, b"\1")], infos, data))
    before = tensor_bytes(path)
    assert edit(path, values={"k": encode(2, "u8")})
    assert tensor_bytes(path) == before
    assert GGUFFile.open(path).metadata["k"] == 2


def test_renamed_tensors(model):
    before = tensor_bytes(model)
    edit(model, renamed_tensors={"output.weight": "a", "token_embd.weight": "output.weight"})
    names = {"output.weight": "a", "token_embd.weight": "output.weight"}
    assert tensor_bytes(model) == {names.get(name, name): data for name, data in before.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"removed": ["nothing"]}, "no metadata key 'nothing'"),
        ({"renamed_keys": {"nothing": "x"}}, "no metadata key 'nothing'"),
        ({"renamed_tensors": {"nothing": "x"}}, "no tensor 'nothing'"),
        ({"renamed_tensors": {"output.weight": "output_norm.weight"}}, "would occur twice"),
        ({"renamed_tensors": {"output.weight": "x" * 64}}, "has 64 bytes"),
    ],
)
def test_a_refused_change_leaves_the_file_as_it_was(model, changes, message):
    raw = model.read_bytes()
    with pytest.raises(GGUFError, match=message):
        edit(model, **changes)
    assert model.read_bytes() == raw
    assert os.listdir(model.parent) == [model.name]
