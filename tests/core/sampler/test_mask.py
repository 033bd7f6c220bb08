import numpy as np
import pytest

from pumice.sampler.mask import allows, at_most_one, count, from_tokens, n_words, to_bits, without_tokens


@pytest.mark.parametrize("n_vocab", [1, 31, 32, 33, 1000])
def test_a_mask_is_a_set_of_tokens(n_vocab: int) -> None:
    rng = np.random.default_rng(n_vocab)
    tokens = np.flatnonzero(rng.random(n_vocab) < 0.3)
    mask = from_tokens(tokens.tolist(), n_vocab)
    assert (mask.dtype, mask.shape) == (np.uint32, (n_words(n_vocab),))
    assert [int(mask[t // 32]) >> (t % 32) & 1 for t in range(n_vocab)] == [int(t in tokens) for t in range(n_vocab)]
    assert np.flatnonzero(to_bits(mask, n_vocab)).tolist() == tokens.tolist()
    assert count(mask, n_vocab) == len(tokens)
    assert np.flatnonzero(allows(mask, np.arange(n_vocab))).tolist() == tokens.tolist()


def test_a_mask_of_at_most_one_token() -> None:
    for token in (0, 31, 32, 99):
        assert at_most_one(from_tokens([token], 100)) == (token,)
    assert at_most_one(from_tokens([], 100)) == ()
    assert at_most_one(from_tokens([3, 4], 100)) is None
    assert at_most_one(from_tokens([3, 40], 100)) is None


def test_tokens_outside_the_vocabulary_are_not_left_out() -> None:
    mask = without_tokens([3, 64, -1, 70], 70)
    assert np.flatnonzero(to_bits(mask, 70)).tolist() == [token for token in range(70) if token not in (3, 64)]
