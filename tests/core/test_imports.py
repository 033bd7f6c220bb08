"""Modules that are imported at start: the command and ``import pumice`` must stay instant."""

import json
import subprocess
import sys

import pytest

import pumice
import pumice.errors

HEAVY = {"numpy", "numba", "kp", "gguf", "pydantic", "tokenizers", "tqdm", "yaml", "pluggy", "scipy", "huggingface_hub"}


def modules_after(code: str) -> set[str]:
    code += "\nimport json, sys; sys.stdout.write('\\n' + json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_importing_pumice_imports_nothing_heavy():
    loaded = modules_after("import pumice; pumice.PumiceError")
    assert "pumice.errors" in loaded
    assert not loaded & {*HEAVY, "click", "importlib.metadata"}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    code = f"""
import sys
from pumice.cli import main
sys.argv = ["pumice", *{arguments}]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    loaded = modules_after(code)
    assert "pumice.cli" in loaded
    assert not loaded & HEAVY


def test_loading_in_a_process_imports_no_engine():
    loaded = modules_after("import pumice; pumice.load_process, pumice.Model")
    assert "pumice.frontend" in loaded
    computing = ("pumice.engine.loop.engine", "pumice.engine.placement.runner", "pumice.planning")
    assert not {name for name in loaded if name.startswith(computing)}


def test_everything_public_is_there():
    assert dir(pumice) == sorted(pumice.__all__)
    for name in pumice.__all__:
        assert getattr(pumice, name) is getattr(pumice, name)
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        _ = pumice.laod


def test_a_model_has_the_names_that_were_reviewed():
    """A change of them is one of the interface."""
    names = """
        generate agenerate generate_many stream astream request chat achat chat_stream achat_stream embed aembed
        rerank arerank score ascore logits hidden ahidden adapters tokenizer template media speech cache engine
        config facts metadata summary sampling n_ctx n_vocab backends memory close closed
    """
    with pumice.load(backend="numpy") as model:
        assert dir(model) == sorted(names.split())


def test_every_error_is_public_and_a_pumice_error():
    errors = {name: error for name, error in vars(pumice.errors).items() if isinstance(error, type)}
    assert set(errors) == {name for name in pumice.__all__ if name.endswith("Error")}
    assert all(issubclass(error, pumice.PumiceError) for error in errors.values())
