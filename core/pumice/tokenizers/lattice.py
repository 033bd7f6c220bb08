"""Find the best segmentation of a text (Viterbi), by Hugging Face ``tokenizers``."""

from collections.abc import Callable, Mapping, Sequence

from pumice.errors import TokenizerError
from pumice.tokenizers.vocabulary import PREFIX, numbers

# Hugging Face's model scores an unknown character by its lowest score minus this.
_PENALTY = 10.0


class Lattice:
    """Splits text into the pieces with the highest total score; of equal totals, the first one wins."""

    def __init__(self, scores: Mapping[str, float], ids: Sequence[int], unknown: float) -> None:
        """``ids``: ids of the pieces in ``scores``. ``unknown``: score of a character that is not a piece."""
        import tokenizers
        from tokenizers import models

        lowest = unknown + _PENALTY
        # The first piece is the unknown one; its empty text never matches.
        pieces = [("", lowest), *((text, max(score, lowest)) for text, score in scores.items())]
        self._model = tokenizers.Tokenizer(models.Unigram(pieces, 0, False))
        self._ids = [-1, *ids]

    def encode(self, text: str, unknown: Callable[[str], list[int]]) -> list[int]:
        """Return the ids of the pieces of ``text``; ``unknown`` returns those of a run of unknown characters."""
        # The fast variant does not compute the offsets of pieces.
        pieces: list[int] = self._model.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if 0 not in pieces:
            return [self._ids[piece] for piece in pieces]
        ids: list[int] = []
        offsets = self._model.encode(text, add_special_tokens=False).offsets
        for piece, (start, end) in zip(pieces, offsets, strict=True):
            ids += (self._ids[piece],) if piece else unknown(text[start:end])
        return ids


def finite_scores(metadata: Mapping[str, object], n: int) -> list[float]:
    """Return the scores of ``n`` tokens.

    Raises:
        TokenizerError: The scores are missing, or one is infinite or NaN.
    """
    scores = numbers(metadata, "scores", n)
    if scores is None:
        raise TokenizerError(f"{PREFIX}scores is missing; this kind of tokenizer needs it")
    if any(abs(score) > 1e30 or score != score for score in scores):
        raise TokenizerError(f"{PREFIX}scores has a value that is infinite or not a number")
    return scores
