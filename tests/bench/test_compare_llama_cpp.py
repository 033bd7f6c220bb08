"""The pure parts of bench/compare_llama_cpp.py: tests by name, medians and ratios."""

import argparse
import importlib
from pathlib import Path

import pytest


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "bench")
    return importlib.import_module("compare_llama_cpp")


def test_tests_have_llama_bench_names(compare):
    assert compare.Test.parse("tg64@2048") == compare.Test.parse("tg64@d2048") == compare.Test("tg", 64, 2048)
    assert [str(compare.Test.parse(text)) for text in ("pp512", "tg64@0", "tg64@9")] == ["pp512", "tg64", "tg64 @ d9"]


@pytest.mark.parametrize("text", ["tg", "pp0", "xx5", "tg64@", "pp-1"])
def test_other_tests_are_refused(compare, text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no test"):
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
