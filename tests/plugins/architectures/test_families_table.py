"""The table of families in docs/families.md is what ``make fixtures NAME=families`` would write, and is complete."""

import json
import re
from pathlib import Path

from make_fixtures import families

KNOWN_TO_LLAMA_CPP = Path(__file__).parents[2] / "fixtures" / "llama_architectures.json"


def test_every_family_has_its_row() -> None:
    _, table, _ = families.parts(families.DOCS.read_text())
    errors = families.known_errors(table)
    assert table == families.HEADER + "".join(families.rows(errors)), "run `make fixtures NAME=families`"


def test_every_family_of_llama_cpp_has_a_row_or_a_reason() -> None:
    text, table, _ = families.parts(families.DOCS.read_text())
    (reasons,) = re.findall(r"This does not run:(.+?)\n\n", text, re.DOTALL)
    missing = re.findall(r"`(\S+)`", reasons)
    known = set(json.loads(KNOWN_TO_LLAMA_CPP.read_text()))
    assert families.known_errors(table).keys() | set(missing) >= known
    assert not families.known_errors(table).keys() & set(missing)


def test_every_error_is_measured_and_small() -> None:
    _, table, _ = families.parts(families.DOCS.read_text())
    for architecture, cells in families.known_errors(table).items():
        for cell in (cell for cell in cells if cell != "-"):
            assert float(cell.split(",")[0]) <= 1e-4, architecture
