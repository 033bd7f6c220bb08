"""docs/tokenizers.md lists every tokenizer and pre-tokenizer, in the order of their tables."""

import re
from pathlib import Path

from pumice.tokenizers import PRE_TOKENIZERS, TOKENIZERS

MODELS, _, PRE = (Path(__file__).parents[3] / "docs" / "tokenizers.md").read_text().partition("## Pre-tokenizers")


def test_every_tokenizer() -> None:
    assert re.findall(r"^\| `(\w+)` \|", MODELS, re.MULTILINE) == list(TOKENIZERS)


def test_every_pre_tokenizer_was_compared_with_enough() -> None:
    rows = re.findall(r"^\| (`.+`) \| ([\d,]+) \|", PRE, re.MULTILINE)
    compared = {name: int(n.replace(",", "")) for names, n in rows for name in re.findall(r"`([^`]+)`", names)}
    assert all(n >= 100_000 for n in compared.values())
    assert not PRE_TOKENIZERS.keys() - compared.keys()


def test_every_pre_tokenizer() -> None:
    assert re.findall(r"`([^`]+)`", PRE.split("\n\n")[2]) == list(PRE_TOKENIZERS)
    assert f"the {len(PRE_TOKENIZERS)} names" in PRE
