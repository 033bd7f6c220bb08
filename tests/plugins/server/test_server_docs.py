"""The page on the server: its tables name tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "server_tests.md").read_text()


def test_the_tests_that_are_named_are_there():
    named = set(re.findall(r"`((?:core|plugins)/[\w/]+(?:\.py)?/?|test_wheel\.py)`", PAGE))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).exists()] == []
    assert len(re.findall(r"^\| \d+ \|", PAGE, re.MULTILINE)) == 25
