"""Differences and checksums."""

import subprocess
import sys

import numpy as np
import pytest

from gguf_files import tiny_llama
from pumice.gguf import GGUFFile, encode
from pumice.gguf.compare import checksums, differences
from pumice.gguf.edit import edit


@pytest.fixture
def model(tmp_path):
    return tiny_llama(tmp_path / "model.gguf")


def test_checksums_are_those_of_the_gguf_package(model):
    code = f"import sys; sys.argv = ['gguf-hash', {str(model)!r}]; from gguf.scripts.gguf_hash import main; main()"
    theirs = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    expected = {tuple(line.split()[:2]) for line in theirs.splitlines() if line.strip()}
    with GGUFFile.open(model) as file:
        ours = list(checksums(file, ("sha1", "sha256", "uuid")))
    assert len(ours) == 2 * (len(GGUFFile.open(model).tensors) + 1) + 1
    assert {(name, digest) for name, digest, _ in ours} == expected


def test_differences(model, tmp_path):
    out = tmp_path / "out.gguf"
    values = {"llama.block_count": encode(2, "u64"), "general.name": encode("x")}
    edit(model, out, values=values, renamed_tensors={"output.weight": "other"})
    raw = bytearray(out.read_bytes())
    file = GGUFFile.open(out)
    tensor = file.tensors["token_embd.weight"]
    number = np.float32(tensor.dequantize()[0, 0] + 0.25)
    raw[tensor.offset : tensor.offset + 4] = number.tobytes()
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(raw)
    found = {(d.what, d.name): (d.first, d.second) for d in differences(GGUFFile.open(model), GGUFFile.open(changed))}
    assert found == {
        ("metadata", "llama.block_count"): ("u32 2", "u64 2"),
        ("metadata", "general.name"): (None, "str 'x'"),
        ("tensor", "output.weight"): ("F32 64 x 300", None),
        ("tensor", "other"): (None, "F32 64 x 300"),
        ("tensor", "token_embd.weight"): ("F32 64 x 300", "differs by up to 0.25"),
    }
    assert len(list(differences(GGUFFile.open(model), GGUFFile.open(changed), data=False))) == 4
