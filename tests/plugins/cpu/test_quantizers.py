"""Blocks beside digests of ggml's (tests/make_fixtures/README.md)."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from nightly import variants
from pumice.gguf import GGMLType, dequantize
from pumice_cpu.quantizer import QUANTIZERS
from quantizer_rows import COLUMNS, rows, weights

EXPECTED = json.loads((Path(__file__).parents[2] / "fixtures" / "quantized_rows.json").read_text())
# Where a group of 32 is all zeros, ggml puts the codes of the groups behind it in the wrong places.
del EXPECTED["IQ3_S"]["plain"]["constant_blocks"], EXPECTED["IQ3_S"]["weighted"]["constant_blocks"]
CASES = [(type, kind) for type, kinds in EXPECTED.items() for kind in kinds if type in QUANTIZERS]

BOTH = ("Q4_0", "Q4_K")
WEIGHTED = ("Q5_1", "Q3_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ4_XS")
DAILY = [(type, kind) for type, kind in CASES if type in BOTH or kind == ("weighted" if type in WEIGHTED else "plain")]
"""Every type, most of them with weights or without: the kernel of each case takes seconds to compile."""


def digests(type, kind, values):
    blocks = QUANTIZERS[type].quantize(np.stack(list(values.values())), weights() if kind == "weighted" else None)
    return {name: hashlib.sha256(row).hexdigest()[:16] for name, row in zip(values, blocks, strict=True)}


@pytest.mark.parametrize(("type", "kind"), variants(CASES, DAILY))
def test_blocks_are_ggmls_bit_for_bit(type, kind):
    made = digests(type, kind, rows())
    expected = EXPECTED[type][kind]
    assert {name: made[name] for name in expected} == expected


def test_a_group_of_zeros_does_not_spoil_the_groups_behind_it():
    row = rows()["normal"]
    row[32:64] = 0
    blocks = QUANTIZERS["IQ3_S"].quantize(row[None], None)
    errors = np.abs(dequantize(blocks, GGMLType.IQ3_S)[0] - row).reshape(-1, 32).max(axis=1)
    assert errors.max() < 0.02


@pytest.mark.parametrize("type", ["Q4_0", "Q4_K", "Q8_0"])
@pytest.mark.parametrize("kind", ["plain", "weighted"])
def test_a_row_does_not_depend_on_its_neighbours(type, kind):
    """Lanes hold groups of several rows, and the last ones are not full."""
    together = digests(type, kind, rows())
    for name, row in list(rows().items())[:5]:
        assert digests(type, kind, {name: row})[name] == together[name]


def test_numbers_that_do_not_lie_side_by_side():
    wide = np.zeros((4, 2 * COLUMNS), np.float32)
    wide[:, :COLUMNS] = np.stack(list(rows().values())[:4])
    expected = QUANTIZERS["Q4_0"].quantize(wide[:, :COLUMNS].copy(), None)
    assert np.array_equal(QUANTIZERS["Q4_0"].quantize(wide[:, :COLUMNS], None), expected)
