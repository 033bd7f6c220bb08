"""Arrays of strings: decoded in one piece as each string would be alone."""

import random

import numpy as np
import pytest

from pumice.gguf.strings import _SEPARATORS, PackedStrings

PIECES = [b"", b"a", b"\n", b"\0", "ä\U0001f600".encode(), b"\xc3", b"\xa4", b"\xf0\x9f", b"\xff", _SEPARATORS]


@pytest.mark.parametrize("n_kinds", [2, 5, 9, 10])
@pytest.mark.parametrize("n", [0, 1, 2, 300])
def test_strings_are_decoded_as_each_alone(n, n_kinds):
    chosen = random.Random(n + n_kinds)
    texts = [b"".join(chosen.choices(PIECES[:n_kinds], k=chosen.randrange(4))) for _ in range(n)]
    packed = PackedStrings(np.array([len(text) for text in texts], np.uint32), b"".join(texts))
    decoded = packed.decode()
    assert decoded == [text.decode("utf-8", "surrogateescape") for text in texts]
    again = PackedStrings.of(decoded)
    assert again.data == packed.data
    assert np.array_equal(again.lengths, packed.lengths)


def test_lengths_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="2 strings do not add up to 3 bytes"):
        PackedStrings(np.array([1, 1], np.uint32), b"abc")
