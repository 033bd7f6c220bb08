"""``pumice quantize``."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from pumice.gguf import GGUFFile
from pumice.imatrix import ActivationSums, write_sums


@pytest.fixture
def file(model, home) -> Path:
    return Path(shutil.copy(model, home / "m.gguf"))


def test_quantize(run, file):
    done = run("quantize", "m.gguf", "q.gguf", "q8_0", "--tensor-type", "ATTN_Q=f16", "--override-kv", "a.b=int:3")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("400,640 bytes to ")
    with GGUFFile.open("q.gguf") as made:
        assert made.tensors["blk.0.attn_q.weight"].type.name == "F16"
        assert made.tensors["blk.0.attn_k.weight"].type.name == "Q8_0"
        assert (made.metadata["general.file_type"], made.metadata["a.b"]) == (7, 3)


def test_a_dry_run_writes_nothing(run, file):
    done = run("quantize", "m.gguf", "q.gguf", "IQ2_XS", "--dry-run")
    assert "token_embd.weight         F32 64 x 300 -> Q4_0 (rows do not fit Q2_K)" in done.stdout
    assert not Path("q.gguf").exists()


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        (["m.gguf", "q.gguf", "Q9"], "unknown type 'Q9'", 1),
        (["qwen3:4b", "q.gguf", "Q8_0"], "qwen3:4b: no such file; `pumice pull qwen3:4b` prints the path", 2),
        (["m.gguf", "q.gguf", "Q8_0", "--tensor-type", "attn=I32"], "unknown tensor type 'I32'", 1),
        (["m.gguf", "q.gguf", "Q8_0", "--output-tensor-type", "Q8_1"], "unknown tensor type 'Q8_1'; did you mean", 1),
        (["m.gguf", "m.gguf", "Q8_0"], "m.gguf: the command reads this file, which would be overwritten", 2),
        (["m.gguf", "q.gguf", "Q8_0", "--imatrix", "m.gguf"], "m.gguf: metadata key 'imatrix.chunk_count' is", 1),
        (["m.gguf", "q.gguf", "Q8_0", "--tensor-type", "x"], "expected NAME=TYPE, not 'x'", 2),
        (["m.gguf", "q.gguf", "Q8_0", "--override-kv", "a=int"], "expected KEY=TYPE:VALUE", 2),
        (["m.gguf", "q.gguf", "Q8_0", "--prune-layers", "a"], "--prune-layers: expected numbers", 2),
        (["m.gguf", "q.gguf", "Q8_0", "--include-weights", "a"], "need --imatrix", 2),
    ],
)
def test_quantize_refuses(run, file, arguments, message, status):
    done = run("quantize", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["m.gguf"]


def test_tensors_that_the_importance_matrix_lacks_are_named(run, file):
    with GGUFFile.open(file) as opened:
        known = {name: tensor.shape[-1] for name, tensor in opened.tensors.items() if "attn" in name}
    sums = ActivationSums(datasets=["text"])
    for name, columns in known.items():
        sums.add(name, np.ones((1, columns)), [1])
    write_sums("i.gguf", sums)
    done = run("quantize", "m.gguf", "q.gguf", "Q4_0", "--imatrix", "i.gguf")
    assert "without weights in the importance matrix: blk.0.ffn_down.weight, " in done.stderr
    assert "embd" not in done.stderr
    dry = run("quantize", "m.gguf", "q.gguf", "Q4_0", "--imatrix", "i.gguf", "--dry-run").stdout
    assert done.stderr.splitlines()[-1] == dry.splitlines()[-1]


def test_a_loop_of_links_is_no_file_to_write(run, file):
    Path("loop").symlink_to("loop")
    done = run("quantize", "m.gguf", "loop/q.gguf", "Q8_0")
    assert (done.returncode, done.stderr) == (1, "error: loop/q.gguf: too many levels of symbolic links\n")
    done = run("quantize", "m.gguf", "loop", "Q8_0")
    assert (done.returncode, done.stderr) == (1, "error: loop: too many levels of symbolic links\n")


def test_a_loop_of_links_is_no_file_to_read(run, file):
    Path("loop.gguf").symlink_to("loop.gguf")
    for arguments in (["run", "loop.gguf", "-p", "x"], ["run", "m.gguf", "--mmproj", "loop.gguf", "-p", "x"]):
        done = run(*arguments)
        assert done.returncode == 1
        assert "loop.gguf: too many levels of symbolic links" in done.stderr
