"""The best of all ways to cut a text into pieces (Viterbi), run by Hugging Face ``tokenizers``."""

from collections.abc import Callable, Mapping, Sequence

from pumice.errors import TokenizerError
from pumice.tokenizers.vocabulary import PREFIX, numbers

# Hugging Face's model scores an unknown character with its lowest score less this.
_PENALTY = 10.0


class Lattice:
    """Cuts text into the pieces whose scores sum to the most; of two equal sums, the first found stays."""

    def __init__(self, scores: Mapping[str, float], ids: Sequence[int], unknown: float) -> None:
        """``ids``: of the pieces that ``scores`` lists. ``unknown``: the score of a character that is no piece."""
        import tokenizers
        from tokenizers import models

        lowest = unknown + _PENALTY
        # The first one is the unknown piece: as it has no text, it is found nowhere.
        pieces = [("", lowest), *((text, max(score, lowest)) for text, score in scores.items())]
        self._model = tokenizers.Tokenizer(models.Unigram(pieces, 0, False))
        self._ids = [-1, *ids]

    def encode(self, text: str, unknown: Callable[[str], list[int]]) -> list[int]:
        """The ids of the pieces of ``text``; those of a run of unknown characters are ``unknown(run)``."""
        # The fast one does not count where in the text each piece is.
        found: list[int] = self._model.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if 0 not in found:
            return [self._ids[piece] for piece in found]
        ids: list[int] = []
        offsets = self._model.encode(text, add_special_tokens=False).offsets
        for piece, (start, end) in zip(found, offsets, strict=True):
            ids += (self._ids[piece],) if piece else unknown(text[start:end])
        return ids


def finite_scores(metadata: Mapping[str, object], n: int) -> list[float]:
    """The scores of ``n`` tokens, without which there is no best way.

    Raises:
        TokenizerError: There are none, or one is infinite or not a number.
    """
    scores = numbers(metadata, "scores", n)
    if scores is None:
        raise TokenizerError(f"{PREFIX}scores is missing: this tokenizer chooses tokens by their scores")
    if any(abs(score) > 1e30 or score != score for score in scores):
        raise TokenizerError(f"{PREFIX}scores has a value that is infinite or not a number")
    return scores
