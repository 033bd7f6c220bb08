"""Whole files, next to llama-quantize's."""

import os
import subprocess
import sys
import time
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest

from gguf_files import tiny_llama, write_gguf
from pumice.errors import PluginError, QuantizeError
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, Writer, encode, row_bytes
from pumice.gguf.copy import encoded_metadata
from pumice.gguf.file_types import FILE_TYPES
from pumice.quantize import QuantizeOptions, quantize, read_imatrix
from pumice.quantize.run import _encoder
from waiting import PATIENCE

NEED_WEIGHTS = ["IQ1_M", "IQ1_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_XS", "IQ3_XXS", "Q2_K_S"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """With rows of 64 and 96 numbers: only types of small blocks fit."""
    return tiny_llama(tmp_path_factory.mktemp("model") / "model.gguf", n_layer=3)


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory):
    """With rows of 256 numbers, which all types fit."""
    return tiny_llama(tmp_path_factory.mktemp("wide") / "wide.gguf", n_layer=1, dim=256, n_ff=256)


@pytest.fixture(scope="module")
def imatrix(model, tmp_path_factory):
    return random_imatrix(model, tmp_path_factory)


@pytest.fixture(scope="module")
def wide_imatrix(wide_model, tmp_path_factory):
    return random_imatrix(wide_model, tmp_path_factory)


def random_imatrix(model, tmp_path_factory):
    """Random weights for all matrices, as llama-imatrix writes them."""
    random = np.random.RandomState(3)
    infos, data = [], []
    for tensor in GGUFFile.open(model).tensors.values():
        if len(tensor.shape) == 2:
            infos += [TensorInfo(f"{tensor.name}.in_sum2", GGMLType.F32, (1, tensor.shape[1]))]
            infos += [TensorInfo(f"{tensor.name}.counts", GGMLType.F32, (1, 1))]
            data += [random.random_sample(tensor.shape[1]).astype(np.float32) * 512, np.full(1, 512, np.float32)]
    metadata = {"general.type": "imatrix", "imatrix.datasets": ["text.txt"]}
    metadata |= {"imatrix.chunk_count": 1, "imatrix.chunk_size": 512}
    path = tmp_path_factory.mktemp("imatrix") / "imatrix.gguf"
    with Writer(path, metadata, infos) as writer:
        for values in data:
            writer.write(values)
    return path


@pytest.mark.parametrize("to", FILE_TYPES)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_every_types_files_are_llama_quantizes(llama_cpp, wide_model, wide_imatrix, tmp_path, to, weighted):
    if to in NEED_WEIGHTS and not weighted:
        with pytest.raises(QuantizeError, match="importance matrix"):
            quantize(wide_model, tmp_path / "ours.gguf", to)
        return
    options = ["--imatrix", wide_imatrix] if weighted else []
    llama_cpp("llama-quantize", *options, wide_model, tmp_path / "theirs.gguf", to, 2)
    quantize(wide_model, tmp_path / "ours.gguf", to, imatrix=wide_imatrix if weighted else None)
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--pure"], {"pure": True}),
        (["--leave-output-tensor"], {"leave_output": True}),
        (["--output-tensor-type", "q5_0"], {"output_type": GGMLType.Q5_0}),
        (["--token-embedding-type", "q8_0"], {"embedding_type": GGMLType.Q8_0}),
        (["--tensor-type", "ffn_.*=q5_1"], {"tensor_types": [("ffn_.*", GGMLType.Q5_1)]}),
        (["--prune-layers", "1"], {"prune_layers": [1]}),
        (
            ["--override-kv", "general.name=str:x", "--override-kv", "a.b=int:7"],
            {"overrides": {"general.name": encode("x"), "a.b": encode(7, "u32")}},
        ),
    ],
)
def test_options_are_llama_quantizes(llama_cpp, model, tmp_path, arguments, options):
    llama_cpp("llama-quantize", *arguments, model, tmp_path / "theirs.gguf", "Q4_0", 2)
    quantize(model, tmp_path / "ours.gguf", "Q4_0", options=QuantizeOptions(**options))
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


def test_parts_are_kept(llama_cpp, model, tmp_path):
    llama_cpp("llama-gguf-split", "--split-max-tensors", 12, model, tmp_path / "m")
    first = next(tmp_path.glob("m-00001-*"))
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
    llama_cpp("llama-quantize", "--keep-split", first, tmp_path / "theirs" / "q.gguf", "Q4_0", 2)
    quantize(first, tmp_path / "ours" / "q.gguf", "Q4_0", options=QuantizeOptions(keep_split=True))
    for path in (tmp_path / "theirs").iterdir():
        with GGUFFile.open(path) as theirs, GGUFFile.open(tmp_path / "ours" / path.name) as ours:
            assert list(ours.tensors) == list(theirs.tensors)
            assert all(np.array_equal(ours.tensors[name].data, theirs.tensors[name].data) for name in theirs.tensors)


def test_the_older_format_of_importance_matrices(imatrix, tmp_path):
    new = read_imatrix(imatrix)
    pieces = [np.int32(len(new.weights)).tobytes()]
    for name, values in new.weights.items():
        raw = name.encode()
        pieces += [np.int32(len(raw)).tobytes(), raw, np.array([3, len(values)], np.int32).tobytes()]
        pieces += [(values * np.float32(3)).tobytes()]
    pieces += [np.array([7, 4], np.int32).tobytes(), b"text"]
    path = tmp_path / "imatrix.dat"
    path.write_bytes(b"".join(pieces))
    old = read_imatrix(path)
    assert (old.n_chunks, old.datasets) == (7, ["text"])
    for name, values in new.weights.items():
        assert np.allclose(old.weights[name], values, rtol=1e-6)
    path.write_bytes(b"".join(pieces)[:-6])
    with pytest.raises(QuantizeError, match="not an importance matrix: truncated or invalid at byte"):
        read_imatrix(path)


def test_experts_have_weights_of_their_own(tmp_path):
    random = np.random.RandomState(5)
    stack = random.standard_normal((3, 8, 64)).astype(np.float32)
    metadata = {"general.architecture": "llama", "llama.block_count": 1, "llama.expert_count": 3}
    names = {"blk.0.ffn_down_exps.weight": stack}
    path = write_gguf(tmp_path / "m.gguf", metadata, names)
    infos = [TensorInfo("blk.0.ffn_down_exps.weight.in_sum2", GGMLType.F32, (3, 64))]
    infos += [TensorInfo("blk.0.ffn_down_exps.weight.counts", GGMLType.F32, (3, 1))]
    header = {"imatrix.datasets": ["x"], "imatrix.chunk_count": 1, "imatrix.chunk_size": 512}
    sums = random.random_sample((3, 64)).astype(np.float32)
    with Writer(tmp_path / "i.gguf", header, infos) as writer:
        writer.write(sums)
        writer.write(np.array([4, 0, 2], np.float32))
    quantize(path, tmp_path / "q.gguf", "Q4_0", imatrix=tmp_path / "i.gguf", options=QuantizeOptions(pure=True))
    from pumice_cpu.quantizer import QUANTIZERS

    data = GGUFFile.open(tmp_path / "q.gguf").tensors["blk.0.ffn_down_exps.weight"].data
    for expert, weights in enumerate((sums[0] / 4, np.ones(64, np.float32), sums[2] / 2)):
        assert np.array_equal(data[expert], QUANTIZERS["Q4_0"].quantize(stack[expert], weights))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_named_and_leave_no_file(tmp_path, bad):
    values = np.ones((40, 64), np.float32)
    values[33, 5] = bad
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama"}, {"blk.0.ffn_up.weight": values})
    with pytest.raises(QuantizeError, match=r"tensor 'blk.0.ffn_up.weight': row 33, column 5 is (nan|inf)"):
        quantize(path, tmp_path / "q.gguf", "Q8_0")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize(("type", "most"), [("F16", 7e4), ("Q8_0", 1e8), ("Q4_K", 1e9), ("TQ2_0", 7e4)])
def test_numbers_too_large_for_a_type_are_named_and_leave_no_file(tmp_path, type, most):
    values = np.ones((40, 256), np.float32)
    values[33, 5] = most
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama"}, {"blk.0.ffn_up.weight": values})
    with pytest.raises(QuantizeError, match=f"'blk.0.ffn_up.weight': rows 0 to 39: .* too large for {type};"):
        quantize(path, tmp_path / "q.gguf", type, options=QuantizeOptions(pure=True))
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
    values[33, 5] = 6e4
    path = write_gguf(path, {"general.architecture": "llama"}, {"blk.0.ffn_up.weight": values})
    quantize(path, tmp_path / "q.gguf", type, options=QuantizeOptions(pure=True))


def test_a_quantized_source_is_refused_but_copied_where_it_fits(model, tmp_path):
    quantize(model, tmp_path / "q8.gguf", "Q8_0")
    with pytest.raises(QuantizeError, match="already Q8_0; quantize from F32, F16 or BF16, or give --allow-requantize"):
        quantize(tmp_path / "q8.gguf", tmp_path / "q4.gguf", "Q4_0")
    assert not (tmp_path / "q4.gguf").exists()
    quantize(tmp_path / "q8.gguf", tmp_path / "again.gguf", "Q8_0")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "q8.gguf").read_bytes()
    quantize(tmp_path / "q8.gguf", tmp_path / "q4.gguf", "Q4_0", options=QuantizeOptions(allow_requantize=True))


def test_an_interrupt_finishes_no_piece_that_was_not_begun(tmp_path, monkeypatch):
    """Each thread of a large machine has two more pieces in line."""
    values = np.ones((4, 1 << 20), np.float32)  # a piece for each row
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama"}, {"blk.0.ffn_up.weight": values})
    quantized, interrupted = [], Event()

    def quantizes_slowly(self, values, weights):
        quantized.append(len(values))
        if len(quantized) == 2 and interrupted.wait(PATIENCE):
            time.sleep(0.5)
        return np.zeros((len(values), row_bytes(GGMLType.Q8_0, 1 << 20)), np.uint8)

    def interrupt(*_):
        interrupted.set()
        raise KeyboardInterrupt

    monkeypatch.setattr("pumice_cpu.quantizer.CpuQuantizer.quantize", quantizes_slowly)
    with pytest.raises(KeyboardInterrupt):
        quantize(path, tmp_path / "q.gguf", "Q8_0", threads=1, progress=interrupt)
    assert len(quantized) <= 2  # the second piece may have been begun
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.skipif(sys.platform != "linux", reason="measured by /proc")
def test_memory_does_not_grow_with_a_tensor(tmp_path):
    """A matrix of 512 MB, nearly all of it a hole in the file; mapped pages are given back, too."""
    path = tmp_path / "m.gguf"
    with Writer(path, {"general.architecture": "llama"}, [TensorInfo("blk.0.x", GGMLType.F32, (1,))]) as writer:
        writer.write(bytes(4))
    info = TensorInfo("blk.0.ffn_up.weight", GGMLType.F16, (1 << 16, 4096))
    writer = Writer(tmp_path / "none", encoded_metadata(GGUFFile.open(path).metadata), [info])
    path.write_bytes(writer.headers[0])
    os.truncate(path, writer.n_bytes)
    code = f"""
from pumice.quantize import quantize
quantize({str(path)!r}, {str(tmp_path / "q.gguf")!r}, "Q8_0", threads=2)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
assert int(peak.split()[1]) < 300_000, peak
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("blocks", [None, np.zeros((2, 3), np.uint8), np.zeros((2, 34), np.float32)])
def test_a_quantizer_that_returns_other_blocks_is_named(blocks):
    encode = _encoder(GGMLType.Q8_0, {"Q8_0": SimpleNamespace(quantize=lambda values, weights: blocks)})
    with pytest.raises(PluginError, match=r"^quantizer 'Q8_0': quantize: TypeError: expected uint8 \[2, 34\], not "):
        encode(np.zeros((2, 32), np.float32), None)
