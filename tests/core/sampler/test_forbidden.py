"""The minimum of tokens: no end token before it, any from it on."""

from pumice.sampler import mask
from pumice.sampler.forbidden import ForbiddenTokens

END, N_VOCAB = 3, 8


def test_an_end_is_allowed_from_the_minimum_on() -> None:
    least = ForbiddenTokens([END], mask.without_tokens([END], N_VOCAB), 2)
    for left in range(2, 0, -1):
        found = least.mask()
        assert found is not None
        assert not mask.to_bits(found, N_VOCAB)[END]
        assert least.n_allowed([END]) == 0
        assert least.n_allowed([0] * left + [END]) == left + 1
        least.accept(0)
    assert least.mask() is None
    assert least.n_allowed([END]) == 1
