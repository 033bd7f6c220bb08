"""Random texts that a constraint allows, one token after the other."""

import numpy as np

from pumice.grammar import Constraint


def tokens_of(mask: np.ndarray) -> list[int]:
    """The tokens of a mask."""
    return [int(token) for token in np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))]


def random_text(constraint: Constraint, tokenizer, rng: np.random.Generator, n_tokens: int = 300) -> str | None:
    """A text that the grammar allows as a whole; None if it had not ended after so many tokens.

    Half of the tokens are drawn from the shorter ones, so that strings and spaces come to an end.
    """
    text: list[int] = []
    for _ in range(n_tokens):
        mask = constraint.mask()
        assert mask is not None
        allowed = tokens_of(mask)
        ends = [token for token in allowed if token in tokenizer.eog]
        others = [token for token in allowed if token not in tokenizer.eog]
        if ends and (not others or rng.random() < 0.5):
            return tokenizer.detokenize([tokenizer.bos, *text])
        if rng.random() < 0.5:
            others = sorted(others, key=lambda token: len(tokenizer.token_bytes(token)))[:20]
        token = int(rng.choice(others))
        constraint.accept(token)
        text.append(token)
    return None
