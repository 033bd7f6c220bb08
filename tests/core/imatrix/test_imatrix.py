"""Importance matrices: what is collected, by hand and next to llama-imatrix; files; statistics."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import pumice
from pumice.cli import cli
from pumice.demo import demo_model_path
from pumice.errors import QuantizeError
from pumice.gguf import GGUFFile, Writer
from pumice.graph import Graph, GraphBuilder
from pumice.imatrix import ActivationSums, Collector, layer_statistics, read_sums, tensor_statistics, write_sums
from pumice.quantize import read_imatrix
from pumice.quantize.protected import is_protected
from tiny_models import IDS
from tiny_zoo import LARGEST, ZOO

TEXT = """Once upon a time there was a little girl named Lily. She loved to play outside in the park with her dog.
One day, they found a big red ball under a tree. "Look!" said Lily. "Let us play with it!" The dog was very happy.
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT * 6)
    return path


def run(*arguments):
    return CliRunner().invoke(cli, ["imatrix", str(demo_model_path()), *map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def measured(text, tmp_path_factory):
    """Return the importance matrix that the command measures for the demo model."""
    path = tmp_path_factory.mktemp("imatrix") / "imatrix.gguf"
    assert run("-f", text, "-c", 64, "-o", path, "--process-output").exit_code == 0
    return path


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_inputs_of_the_first_layer_by_hand(backend):
    ids = [1, 5, 9, 300, 42, 7, 7, 8]
    collector = Collector(ActivationSums())
    with pumice.load(backend=backend, n_ctx=64, observer=collector) as model:
        model.logits(ids)
        eps = model.metadata["llama.attention.layer_norm_rms_epsilon"]
    with GGUFFile.open(demo_model_path()) as file:
        x = file.tensors["token_embd.weight"].dequantize()[ids].astype(np.float64)
        norm = file.tensors["blk.0.attn_norm.weight"].dequantize()
    x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps) * norm
    for name in ("attn_q", "attn_k", "attn_v"):
        found = collector.sums.tensors[f"blk.0.{name}.weight"]
        assert found.counts == [len(ids)]
        assert found.squares[0] == pytest.approx((x**2).sum(axis=0), rel=1e-3, abs=1e-4)
    assert "output.weight" not in collector.sums.tensors


def test_each_expert_sees_its_rows():
    random = np.random.default_rng(3)
    up, down = random.standard_normal((5, 6, 4)), random.standard_normal((5, 4, 6))
    collector = Collector(ActivationSums())
    graph = watched(collector, {"blk.0.ffn_up_exps.weight": up, "blk.0.ffn_down_exps.weight": down})
    x = random.standard_normal((7, 4)).astype(np.float32)
    hidden = random.standard_normal((7, 2, 6)).astype(np.float32)
    ids = random.integers(0, 4, (7, 2)).astype(np.int32)  # never the last expert
    values = dict(zip(graph.inputs, (x, ids, hidden), strict=True))
    collector({name: values[tensor.name] for name, tensor in graph.outputs.items() if tensor.name in values})
    for name, rows in (("up", np.repeat(x[:, None], 2, axis=1)), ("down", hidden)):
        sums = collector.sums.tensors[f"blk.0.ffn_{name}_exps.weight"]
        for expert in range(5):
            own = rows[ids == expert].astype(np.float64)
            assert sums.counts[expert] == len(own)
            assert sums.squares[expert] == pytest.approx((own**2).sum(axis=0))
    assert (sums.means[4] == 1).all()


def watched(collector: Collector, weights: dict[str, np.ndarray]) -> Graph:
    """A graph of two products with experts, as the collector wants it."""
    g = GraphBuilder({}, 1, 8)
    constants = [g.constant(name, array) for name, array in weights.items()]
    x, ids = g.input("x", ("n_tokens", 4)), g.input("ids", ("n_tokens", 2), "i32")
    g.output("up", g.mul_mat_id(x, constants[0], ids))
    g.output("down", g.mul_mat_id(g.input("hidden", ("n_tokens", 2, 6)), constants[1], ids))
    return collector.watch(g.finish())


@pytest.mark.parametrize("architecture", ["deepseek2", "lfm2", "jamba", "kimi-linear", "qwen3next"])
def test_every_matrix_of_a_layer_is_measured(tmp_path, architecture):
    collector = Collector(ActivationSums())
    path = ZOO[LARGEST[architecture]].write(tmp_path / "m.gguf")
    with pumice.load(path, backend="numpy", n_ctx=64, observer=collector) as model:
        model.logits(IDS)
    with GGUFFile.open(path) as file:
        shapes = {name: tensor.shape for name, tensor in file.tensors.items() if name.startswith("blk.")}
    matrices = {name for name, shape in shapes.items() if not is_protected(architecture, name, shape)}
    assert matrices
    assert matrices <= collector.sums.tensors.keys()


def test_it_is_llama_imatrixs(llama_cpp, text, measured, tmp_path):
    options = ["-f", text, "-c", 64, "--process-output"]
    llama_cpp("llama-imatrix", "-m", demo_model_path(), "-o", tmp_path / "theirs.gguf", *options)
    theirs, ours = read_sums(tmp_path / "theirs.gguf"), read_sums(measured)
    assert (ours.n_chunks, ours.chunk_size, ours.datasets) == (theirs.n_chunks, theirs.chunk_size, theirs.datasets)
    assert list(ours.tensors) == list(theirs.tensors)
    for name, sums in theirs.tensors.items():
        assert (ours.tensors[name].counts == sums.counts).all()
        error = np.abs(ours.tensors[name].squares - sums.squares).max() / sums.squares.max()
        assert error < 0.02, name  # it rounds what goes into products to 8 bits


def test_llama_imatrix_reads_both_formats(llama_cpp, measured, tmp_path):
    sums = read_sums(measured)
    write_sums(tmp_path / "ours.dat", sums, dat=True)
    for path in (measured, tmp_path / "ours.dat"):
        llama_cpp("llama-imatrix", "-m", demo_model_path(), "--in-file", path, "-c", 64, "-o", tmp_path / "again.gguf")
        again = read_sums(tmp_path / "again.gguf")
        for name, each in sums.tensors.items():
            assert again.tensors[name].means.reshape(-1) == pytest.approx(each.means.reshape(-1), rel=1e-5)


def test_statistics_are_llama_imatrixs(llama_cpp, measured):
    for _ in range(30):  # it may end before it has written its log
        output = llama_cpp("llama-imatrix", "-m", demo_model_path(), "--in-file", measured, "--show-statistics")
        rows = re.findall(r"(\d+)\t(attn_|ffn_)(\w+)\s+(.+)", output)
        if len(rows) == 42:
            break
    found = tensor_statistics(read_sums(measured))
    assert len(found) == len(rows)
    for each, (layer, kind, name, numbers) in zip(found, rows, strict=True):
        assert each.name == f"blk.{layer}.{kind}{name}.weight"
        theirs = [float(number.rstrip("%")) for number in numbers.split()]
        ours = [each.total, each.low, each.high, each.mean, each.deviation, 100 * each.active, each.n, each.entropy]
        ours += [100 * each.entropy_share, 100 * each.z_density, each.similarity]
        assert theirs == pytest.approx(ours, rel=1e-3, abs=6e-3)
    assert [layer.layer for layer in layer_statistics(found)] == [0, 1, 2, 3, 4, 5]


def test_files_keep_everything(measured, tmp_path):
    sums = read_sums(measured)
    write_sums(tmp_path / "again.gguf", sums)
    assert (tmp_path / "again.gguf").read_bytes() == measured.read_bytes()
    write_sums(tmp_path / "old.dat", sums, dat=True)
    old = read_sums(tmp_path / "old.dat", sums.chunk_size)
    assert (old.n_chunks, old.datasets) == (sums.n_chunks, sums.datasets)
    for name, each in sums.tensors.items():
        assert old.tensors[name].means == pytest.approx(each.means, rel=1e-5)


def test_files_are_added_up(measured, text, tmp_path):
    out = tmp_path / "sum.gguf"
    assert run("--in-file", f"{measured},{measured}", "-o", out, "-c", 64).exit_code == 0
    one, two = read_sums(measured), read_sums(out)
    assert (two.n_chunks, two.datasets) == (2 * one.n_chunks, 2 * one.datasets)
    name = "blk.3.ffn_down.weight"
    assert two.tensors[name].squares == pytest.approx(2 * one.tensors[name].squares)
    assert read_imatrix(out).weights[name] == pytest.approx(read_imatrix(measured).weights[name])


def test_matrices_that_cannot_be_added(measured, tmp_path):
    other = ActivationSums()
    other.add("blk.0.attn_q.weight", np.ones((1, 8)), [4])
    write_sums(tmp_path / "other.gguf", other)
    with pytest.raises(QuantizeError, match=r"attn_q\.weight' have shapes \[1, 8\] and \[1, 256\]; they come from"):
        run("--in-file", measured, "--in-file", tmp_path / "other.gguf", "-o", tmp_path / "sum.gguf")
    with pytest.raises(QuantizeError, match="nothing to write"):
        write_sums(tmp_path / "none.gguf", ActivationSums())


def test_the_command(text, tmp_path):
    out = tmp_path / "i.dat"
    result = run("-f", text, "-c", 32, "-o", out, "--chunks", 4, "--save-frequency", 2)
    assert "perplexity" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["i.dat", "i.dat.at_2", "i.dat.at_4"]
    assert read_sums(out, 32).n_chunks == 4
    statistics = run("--in-file", out, "--show-statistics", "-c", 32).stdout.splitlines()
    assert statistics[0].startswith("tensor ")
    assert len(statistics) == 1 + 42 + 2 + 6
    with pytest.raises(pumice.PumiceError, match="exists already; give --force"):
        run("-f", text, "-c", 32, "-o", out)
    out.unlink()
    with pytest.raises(pumice.PumiceError, match=r"i\.dat\.at_2: exists already; give --force"):
        run("-f", text, "-c", 32, "-o", out, "--output-frequency", 1, "--save-frequency", 2)
    assert "give a text with --file, or --in-file" in run("-o", tmp_path / "x.gguf").stderr
    assert "needs one --in-file" in run("--show-statistics").stderr


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("imatrix.chunk_size", "5²2", r"imatrix\.chunk_size is '5²2', but must be an integer of at least 1"),
        ("imatrix.chunk_size", 0, "at least 1"),
        ("imatrix.chunk_count", -1, "at least 0"),
        ("imatrix.datasets", 5, r"imatrix\.datasets must be a list of texts"),
        ("imatrix.datasets", [5], "list of texts"),
    ],
)
def test_metadata_of_other_types(tmp_path, key, value, message):
    metadata = {"imatrix.datasets": ["a"], "imatrix.chunk_count": 1, "imatrix.chunk_size": 64, key: value}
    with Writer(tmp_path / "wrong.gguf", metadata, []):
        pass
    with pytest.raises(QuantizeError, match=message):
        read_sums(tmp_path / "wrong.gguf")


def test_experts_that_no_token_reached_are_named(tmp_path):
    sums = ActivationSums()
    sums.add("blk.0.ffn_up_exps.weight", np.ones((4, 8)), [3, 0, 5, 0])
    sums.add("blk.0.attn_q.weight", np.ones((1, 8)), [8])
    assert sums.unreached == {"blk.0.ffn_up_exps.weight": 2}
    write_sums(tmp_path / "some.gguf", sums)
    said = run("--in-file", tmp_path / "some.gguf", "-o", tmp_path / "sum.gguf").stderr
    assert "blk.0.ffn_up_exps.weight: 2 of 4 experts were never chosen" in said


def test_activations_that_are_not_finite_are_an_error():
    collector = Collector(ActivationSums())
    g = GraphBuilder({}, 1, 8)
    g.output("y", g.linear(g.input("x", ("n_tokens", 4)), g.constant("blk.0.w", np.ones((2, 4)))))
    collector.watch(g.finish())
    with pytest.raises(QuantizeError, match=r"the input of 'blk\.0\.w' is not finite"):
        collector({"activation x": np.full((3, 4), np.nan, np.float32)})


def test_room_is_looked_for_before_anything_is_measured(text, measured, tmp_path, monkeypatch):
    with GGUFFile.open(measured) as file:
        n_bytes = sum(tensor.nbytes for tensor in file.tensors.values())
    monkeypatch.setattr("pumice.cli.imatrix.text_ids", lambda *_: pytest.fail("it has begun"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=n_bytes - 1))
    with pytest.raises(pumice.PumiceError, match=f"{n_bytes:,} bytes are needed, but only {n_bytes - 1:,} are free"):
        run("-f", text, "-o", tmp_path / "i.gguf", "--process-output")
