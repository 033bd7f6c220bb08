"""``pumice gguf``."""

import json
import shutil
from pathlib import Path

import pytest

from pumice.gguf import GGUFFile


@pytest.fixture
def file(model, home) -> Path:
    return Path(shutil.copy(model, home / "m.gguf"))


def test_show(run, file):
    text = run("gguf", "show", "m.gguf").stdout
    assert "llama.block_count = u32 2" in text
    assert "tokenizer.ggml.tokens = str[300] ['<unk>', '<s>', '</s>', '<0x00>'," in text
    assert "blk.1.ffn_down.weight     F32 96 x 64" in text
    assert "ffn_down" not in run("gguf", "show", "m.gguf", "--no-tensors").stdout
    assert run("gguf", "show", "m.gguf", "llama.block_count").stdout == "2\n"
    assert run("gguf", "show", "m.gguf", "general.architecture").stdout == "llama\n"
    facts = json.loads(run("gguf", "show", "m.gguf", "--json").stdout)
    assert facts["metadata"]["llama.block_count"] == {"type": "u32", "value": 2}
    assert facts["tensors"][0]["shape"] == [64, 300]
    assert run("gguf", "show", "m.gguf", "nothing")[0::2] == (1, "error: m.gguf: there is no metadata key 'nothing'\n")
    typo = run("gguf", "show", "m.gguf", "llama.block_cont").stderr
    assert typo == "error: m.gguf: there is no metadata key 'llama.block_cont'; did you mean 'llama.block_count'?\n"


def test_set(run, file):
    Path("template.txt").write_text("{{ a }}\n")
    assert run(
        *("gguf", "set", "m.gguf", "llama.context_length=64", "general.name=str:A: model=x", "my.list=f32[]:[1, 2.5]"),
        *("--from-file", "tokenizer.chat_template=template.txt", "--remove", "llama.rope.dimension_count"),
    ) == (0, "", "")
    metadata = GGUFFile.open(file).metadata
    assert metadata["llama.context_length"] == 64
    assert metadata["general.name"] == "A: model=x"
    assert metadata["my.list"].tolist() == [1, 2.5]
    assert metadata["tokenizer.chat_template"] == "{{ a }}\n"
    assert "llama.rope.dimension_count" not in metadata
    assert run("gguf", "set", "m.gguf", "general.name=other").returncode == 0
    assert GGUFFile.open(file).metadata["general.name"] == "other"


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        (["llama.context_length=x"], "error: metadata key 'llama.context_length': 'x' is not a value of type u32\n", 1),
        (["a=u8:300"], "error: metadata key 'a': 300 is not a value of type u8\n", 1),
        (
            ["llama.context_lenth=1"],
            "error: 'llama.context_lenth' is a new key: give its type, as in llama.context_lenth=str:1; "
            "did you mean 'llama.context_length'? (see `pumice gguf set --help`)\n",
            2,
        ),
        (["new=1"], "error: 'new' is a new key: give its type, as in new=str:1 (see `pumice gguf set --help`)\n", 2),
        (["new"], "error: expected KEY=VALUE, not 'new' (see `pumice gguf set --help`)\n", 2),
        ([], "error: nothing to set: give KEY=VALUE, --from-file or --remove (see `pumice gguf set --help`)\n", 2),
        (["--from-file", "a=missing"], "error: missing: no such file or directory\n", 1),
        (["general.name=str:a", "-o", "m.gguf"], "error: m.gguf: exists already; give --force to replace it\n", 1),
    ],
)
def test_set_refuses(run, file, arguments, message, status):
    raw = file.read_bytes()
    assert run("gguf", "set", "m.gguf", *arguments) == (status, "", message)
    assert file.read_bytes() == raw


def test_rename(run, file):
    assert run("gguf", "rename", "m.gguf", "output.weight=a", "-o", "n.gguf") == (0, "", "")
    assert "a" in GGUFFile.open("n.gguf").tensors
    assert run("gguf", "rename", "m.gguf", "--key", "llama.block_count=b") == (0, "", "")
    assert GGUFFile.open(file).metadata["b"] == 2


def test_split_and_merge(run, file):
    done = run("gguf", "split", "m.gguf", "part", "--max-tensors", "10", "--no-tensor-first")
    assert done.stdout.splitlines() == [f"part-{i:05}-of-00004.gguf" for i in range(1, 5)]
    assert len(run("gguf", "split", "m.gguf", "sized", "--max-size", "100K").stdout.splitlines()) == 5
    assert run("gguf", "merge", "part-00002-of-00004.gguf", "merged.gguf") == (0, "", "")
    assert Path("merged.gguf").read_bytes() == file.read_bytes()
    again = run("gguf", "merge", "part-00002-of-00004.gguf", "merged.gguf")
    assert again == (1, "", "error: merged.gguf: exists already; give --force to replace it\n")
    assert run("gguf", "split", "m.gguf", "x", "--max-size", "0").returncode == 2


def test_diff(run, file):
    run("gguf", "set", "m.gguf", "llama.context_length=64", "-o", "n.gguf")
    assert run("gguf", "diff", "m.gguf", "m.gguf") == (0, "", "")
    lines = "- metadata llama.context_length: u32 256\n+ metadata llama.context_length: u32 64\n"
    assert run("gguf", "diff", "m.gguf", "n.gguf") == (1, lines, "")
    assert json.loads(run("gguf", "diff", "m.gguf", "n.gguf", "--json").stdout)[0]["second"] == "u32 64"


def test_hash(run, file):
    lines = run("gguf", "hash", "m.gguf").stdout
    assert len(lines.splitlines()) == len(GGUFFile.open(file).tensors) + 1
    Path("sums").write_text(lines)
    assert run("gguf", "hash", "m.gguf", "--check", "sums") == (0, "", "")
    Path("more").write_text(lines + "sha256    00  m.gguf:blk.9.x\n")
    assert run("gguf", "hash", "m.gguf", "--check", "more") == (1, "sha256    00  m.gguf:blk.9.x: missing\n", "")
    Path("empty").touch()
    problems = {"empty": "it has no checksums", "nowhere": "cannot be read: No such file", "m.gguf": "not"}
    for name, problem in problems.items():
        done = run("gguf", "hash", "m.gguf", "--check", name)
        assert (done.returncode, done.stderr.startswith(f"error: {name}: {problem}")) == (1, True)
    offset = GGUFFile.open(file).tensors["output.weight"].offset
    raw = bytearray(file.read_bytes())
    raw[offset] ^= 1
    file.write_bytes(raw)
    done = run("gguf", "hash", "m.gguf", "--check", "sums")
    assert done.returncode == 1
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["m.gguf:output.weight:", "m.gguf:"]
    assert run("gguf", "hash", "m.gguf", "-a", "uuid", "--no-tensors").stdout.startswith("uuid      ")
