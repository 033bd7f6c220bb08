"""Split and merged models, next to llama-gguf-split."""

from functools import partial

import pytest
from click.testing import CliRunner

from gguf_files import tiny_llama
from pumice.cli import cli
from pumice.gguf import GGUFFile
from pumice.gguf.copy import merge, parts_by_number, parts_by_size, split


@pytest.fixture
def model(tmp_path):
    return tiny_llama(tmp_path / "model.gguf", n_layer=12)


@pytest.mark.parametrize(
    ("parts", "arguments"),
    [
        (partial(parts_by_number, most=7), ["--split-max-tensors", 7]),
        (partial(parts_by_size, most=1_000_000), ["--split-max-size", "1M"]),
        (lambda tensors: [0, *parts_by_number(tensors, 7)], ["--split-max-tensors", 7, "--no-tensor-first-split"]),
    ],
)
def test_parts_are_llama_gguf_splits_byte_for_byte(llama_cpp, model, tmp_path, parts, arguments):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    paths = split(model, ours / "m.gguf", parts)
    llama_cpp("llama-gguf-split", "--split", *arguments, model, theirs / "m")
    assert [path.name for path in paths] == sorted(path.name for path in theirs.iterdir())
    assert len(paths) > 1
    for path in paths:
        assert path.read_bytes() == (theirs / path.name).read_bytes()


def test_merging_gives_the_file_that_was_split(model, tmp_path):
    paths = split(model, tmp_path / "m.gguf", partial(parts_by_size, most=50_000))
    seen = []
    merge(paths[1], tmp_path / "merged.gguf", progress=lambda done, total: seen.append((done, total)))
    assert (tmp_path / "merged.gguf").read_bytes() == model.read_bytes()
    assert seen[-1][0] == seen[-1][1] == sum(tensor.nbytes for tensor in GGUFFile.open(model).tensors.values())


def test_no_part_is_in_place_before_all_are(model, tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()

    def fail(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split(model, out / "m.gguf", partial(parts_by_number, most=4), progress=fail)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("size", ["9" * 5000, "9" * 5000 + "G", "9" * 5000 + "GiB", "0", "-1M", "1e3", "much"])
def test_sizes_of_parts_that_are_none(model, tmp_path, size):
    told = CliRunner().invoke(cli, ["gguf", "split", str(model), str(tmp_path / "part"), "--split-max-size", size])
    assert told.exit_code == 2
    assert "is not a size such as 500M, 4G or 4GiB" in told.output
