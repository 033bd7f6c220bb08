"""Rows of pictures beside those of llama.cpp's libmtmd, as the documentation tells their differences."""

import re

import numpy as np
import pytest

import vision_models
from libmtmd_cases import ALL, DOCS, FIXTURE, difference, our_rows, projector_type, write_file
from nightly import variants

pytest.importorskip("PIL")
STORED = np.load(FIXTURE)
TABLE = DOCS.read_text().partition("## Projector types")[2].partition("\n## ")[0]
COLUMN = dict(re.findall(r"^\| `([\w.-]+)` (?:\|[^|\n]*){3}\| ([^|\n]*) \|[^|\n]*\|$", TABLE, re.MULTILINE))
AGREE = 0.01  # largest difference of a type that computes the same, with products in float16


@pytest.mark.parametrize("kind", variants(ALL, [kind for kind in ALL if kind not in vision_models.CASES]))
def test_rows_differ_from_those_of_libmtmd_as_the_documentation_tells(tmp_path, kind):
    path = write_file(tmp_path, kind)
    told, found = COLUMN[projector_type(path)], difference(our_rows(path, kind), STORED[kind])
    assert found > AGREE if told == "other rows" else found <= 1.02 * float(told)
