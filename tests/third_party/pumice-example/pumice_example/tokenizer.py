"""How Stone's byte-level BPE cuts text into words before it merges."""

from pumice.plugin import PreTokenizer

STONE = PreTokenizer(
    patterns=(r"\p{N}", r"'\p{L}+| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+"),  # each digit alone, then words
    ignore_merges=True,
)
