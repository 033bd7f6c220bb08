"""The table of families in docs/models.md is what ``make fixtures NAME=families`` would write."""

from make_fixtures import families


def test_every_family_has_its_row() -> None:
    _, table, _ = families.parts(families.DOCS.read_text())
    errors = families.known_errors(table)
    assert table == families.HEADER + "".join(families.rows(errors)), "run `make fixtures NAME=families`"


def test_every_error_is_small() -> None:
    _, table, _ = families.parts(families.DOCS.read_text())
    for architecture, cells in families.known_errors(table).items():
        for cell in cells:
            assert cell == "-" or float(cell.split(",")[0]) <= 1e-4, architecture
