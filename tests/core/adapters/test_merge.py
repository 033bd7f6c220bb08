"""Adapters in a model's weights: the same logits as beside it, and llama-export-lora's files."""

import pytest
from click.testing import CliRunner

import pumice
from adapters import ATTENTION, CASES, DENSE, write_adapter, write_case
from pumice.cli import cli
from pumice.errors import GGUFError, ModelError
from tiny_models import IDS
from tiny_zoo import ZOO


def run(*arguments):
    return CliRunner().invoke(cli, ["export-lora", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize("case", CASES)
def test_merged_logits_are_those_with_adapters(tmp_path, case):
    files = write_case(tmp_path, case)
    base = ZOO[CASES[case][0]].write(tmp_path / "base.gguf")
    scaled = [argument for path, scale in files for argument in ("--lora-scaled", f"{path}:{scale}")]
    assert run(base, tmp_path / "merged.gguf", *scaled).stdout.strip() == str(tmp_path / "merged.gguf")
    named = {f"a{i}": str(path) for i, (path, _) in enumerate(files)}
    with pumice.load(base, backend="numpy", kv_type="f32", config={"adapters": named}) as model:
        expected = model.logits(IDS, adapters={f"a{i}": scale for i, (_, scale) in enumerate(files)})
    with pumice.load(tmp_path / "merged.gguf", backend="numpy", kv_type="f32") as model:
        assert model.logits(IDS) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_adapters_that_do_not_fit(tmp_path):
    zoo = ZOO["llama-bias"]
    base = zoo.write(tmp_path / "base.gguf")
    other = type(zoo)(zoo.architecture, zoo.metadata, {**zoo.shapes, "blk.0.attn_q.weight": (48, 64), "x": (4, 4)})
    with pytest.raises(ModelError, match=r"'blk\.0\.attn_q\.weight' does not fit the weight \[64, 64\]"):
        run(base, tmp_path / "o.gguf", "--lora", write_adapter(tmp_path / "a.gguf", other, ATTENTION))
    with pytest.raises(ModelError, match=r"changes 'x', which .* does not have"):
        run(base, tmp_path / "o.gguf", "--lora", write_adapter(tmp_path / "b.gguf", other, ["x"]))
    assert "give an adapter" in run(base, tmp_path / "o.gguf").stderr
    assert "expected FILE:SCALE" in run(base, tmp_path / "o.gguf", "--lora-scaled", "a.gguf").stderr
    fitting = write_adapter(tmp_path / "c.gguf", zoo, DENSE)
    (tmp_path / "there.gguf").touch()
    with pytest.raises(GGUFError, match="exists already; give --force"):
        run(base, tmp_path / "there.gguf", "--lora", fitting)
    assert "would be overwritten; give another name" in run(base, base, "--force", "--lora", fitting).stderr
    assert not (tmp_path / "o.gguf").exists()
