"""The table of model classes in docs/model_classes.md is what ``make fixtures NAME=model_classes`` would write."""

from make_fixtures import model_classes


def test_every_class_has_its_row() -> None:
    _, table, _ = model_classes.parts(model_classes.DOCS.read_text())
    assert table == model_classes.HEADER + "".join(model_classes.rows()), "run `make fixtures NAME=model_classes`"
