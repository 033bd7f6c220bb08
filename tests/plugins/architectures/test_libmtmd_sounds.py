"""Rows of a sound beside those of llama.cpp's libmtmd, as the documentation tells their differences."""

import re

import numpy as np
import pytest

from libmtmd_cases import DOCS, difference
from libmtmd_sounds import FIXTURE, KINDS, NOT_RUN, of_same_codes, our_rows, write_file
from pumice_architectures.hearing import SOUND_ENCODERS

STORED = np.load(FIXTURE)
TABLE = DOCS.read_text().partition("## Types of sound encoders")[2].partition("\n## ")[0]
COLUMN = dict(re.findall(r"^\| `([\w.-]+)` (?:\|[^|\n]*){3}\| ([^|\n]*) \|[^|\n]*\|$", TABLE, re.MULTILINE))


def test_the_table_in_the_documentation_tells_of_every_type():
    assert {name: COLUMN[name] for name in NOT_RUN} == NOT_RUN
    apart = {"whisper"}  # test_whisper.py
    assert KINDS.keys() | NOT_RUN.keys() | apart == COLUMN.keys() == SOUND_ENCODERS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_rows_differ_from_those_of_libmtmd_as_the_documentation_tells(tmp_path, name):
    ours = our_rows(write_file(tmp_path, KINDS[name]))
    found = difference(*of_same_codes(name, ours, STORED[name]))
    assert found <= 1.02 * float(COLUMN[name]) < 0.025
