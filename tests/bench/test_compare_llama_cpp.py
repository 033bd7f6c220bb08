"""The pure parts of bench/compare_llama_cpp.py: tests by name, medians and ratios."""

import argparse
import importlib
from dataclasses import replace
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "core" / "pumice" / "models" / "pumice-demo.gguf"


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "bench")
    return importlib.import_module("compare_llama_cpp")


def test_tests_have_llama_bench_names(compare):
    assert compare.Test.parse("tg64@2048") == compare.Test.parse("tg64@d2048") == compare.Test("tg", 64, 2048)
    assert [str(compare.Test.parse(text)) for text in ("pp512", "tg64@0", "tg64@9")] == ["pp512", "tg64", "tg64 @ d9"]


@pytest.mark.parametrize("text", ["tg", "pp0", "xx5", "tg64@", "pp-1"])
def test_other_tests_are_refused(compare, text):
    with pytest.raises(argparse.ArgumentTypeError, match="invalid test"):
        compare.Test.parse(text)


def test_a_row_has_medians_spread_and_their_ratio(compare):
    row = compare.Row("m", "tg64", "tokens/s", {"pumice": [30.0, 60.0, 90.0], "llama.cpp": [41.0, 39.0, 40.0]})
    assert row.ratio == 1.5
    cells = [cell.strip() for cell in row.markdown().strip("|").split("|")]
    assert cells == ["m", "tg64, tokens/s", "60.0 (30.0 to 90.0)", "40.0 (39.0 to 41.0)", "1.50"]
    assert row.as_dict()["medians"] == {"pumice": 60.0, "llama.cpp": 40.0}


def test_one_engine_alone_has_no_ratio(compare):
    row = compare.Row("m", "pp8", "tokens/s", {"llama.cpp": [0.5]})
    assert row.ratio is None
    assert row.markdown().split("|")[3:6:2] == [f" {'-':<24} ", f" {'-':<6} "]


BATCHED = """#!/bin/sh
echo 'a line of its log'
echo '{"pp": 8, "tg": 4, "pl": 2, "speed_pp": 50.0, "speed_tg": 20.0}'
"""


@pytest.fixture
def parallel(compare, tmp_path):
    program = tmp_path / "llama-batched-bench"
    program.write_text(BATCHED)
    program.chmod(0o755)
    return importlib.import_module("parallel").Parallel(8, 4, [2], 1, 0, "numpy", str(program))


def test_many_sequences_are_measured_by_both(parallel):
    theirs, ours = parallel.runners["llama.cpp"](Path("model.gguf")), parallel.runners["pumice"](DEMO)
    assert theirs == {("pp", 2): 50.0, ("tg", 2): 20.0}
    assert ours.keys() == theirs.keys()
    assert min(ours.values()) > 0


def test_a_program_that_is_not_there_is_one_line(parallel):
    with pytest.raises(Exception, match="nothing not found; build llama"):
        replace(parallel, program="nothing").runners["llama.cpp"](Path("model.gguf"))
