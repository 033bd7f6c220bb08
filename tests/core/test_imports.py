"""Modules that are imported at start: the command and ``import pumice`` must stay instant."""

import inspect
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
    loaded = modules_after("import pumice; pumice.load_process, pumice.LinkedModel")
    assert "pumice.frontend" in loaded
    computing = ("pumice.engine.loop.engine", "pumice.engine.placement.runner", "pumice.planning")
    assert not {name for name in loaded if name.startswith(computing)}


def test_load_imports_nothing_before_its_call():
    loaded = modules_after("import pumice; pumice.load")
    assert "pumice.loading" in loaded
    assert not loaded & {"numpy", "pydantic", "yaml"}


def test_objects_of_a_load_are_old():
    code = """
import gc
from pumice.switching import without_collections
with without_collections(makes_old=True):
    kept = [[i] for i in range(50_000)]
counts = gc.get_count()
assert gc.isenabled() and counts[0] < 1000, counts
gc.collect(0)
assert any(item is kept for item in gc.get_objects(generation=2))
"""
    assert modules_after(code)


def test_threads_switch_as_before_once_all_loads_have_ended():
    """Loads of two threads overlap, and may end in the order of their beginnings."""
    code = """
import sys
from pumice.switching import frequent_switches
usual = sys.getswitchinterval()
first, second = frequent_switches(), frequent_switches()
first.__enter__()
second.__enter__()
first.__exit__(None, None, None)
assert sys.getswitchinterval() < usual
second.__exit__(None, None, None)
assert sys.getswitchinterval() == usual
"""
    assert modules_after(code)


def test_objects_that_a_program_froze_are_counted_once():
    """Counting walks through all of them, and each load would hold Python's lock for it."""
    code = """
import gc
from pumice.switching import without_collections
kept = [[i] for i in range(50_000)]
gc.freeze()
count, counted = gc.get_freeze_count, []
gc.get_freeze_count = lambda: counted.append(count()) or counted[-1]
for _ in range(3):
    with without_collections(makes_old=True):
        pass
assert len(counted) == 1 and counted[0] <= count(), counted
"""
    assert modules_after(code)


def test_everything_public_is_there():
    assert dir(pumice) == sorted(pumice.__all__)
    for name in pumice.__all__:
        assert getattr(pumice, name) is getattr(pumice, name)
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        _ = pumice.laod


def test_every_error_is_public_and_a_pumice_error():
    errors = {name: error for name, error in vars(pumice.errors).items() if isinstance(error, type)}
    assert set(errors) == {name for name in pumice.__all__ if name.endswith("Error")}
    assert all(issubclass(error, pumice.PumiceError) for error in errors.values())


def test_arguments_of_methods_that_generate_are_reserved():
    """No sampler can have a parameter of such a name, since nobody could set it."""
    from pumice.options import SAMPLING
    from pumice.sampler.parameters import RESERVED

    arguments = {
        name
        for method, function in inspect.getmembers(pumice.Model, inspect.isfunction)
        if method.removeprefix("a") in {"chat", "chat_stream", "generate", "generate_many", "request", "stream"}
        for name in inspect.signature(function).parameters
    }
    assert arguments - {"self", *SAMPLING} == RESERVED
