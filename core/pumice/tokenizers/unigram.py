"""SentencePiece Unigram (GGUF's tokenizer model "t5"): the most probable segmentation of a text.

Kudo, 2018 (https://arxiv.org/abs/1804.10959).
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from pumice.errors import TokenizerError
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.charsmap import Charsmap
from pumice.tokenizers.lattice import Lattice, finite_scores
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import PREFIX, Vocabulary, value

SPACE = "▁"

# The score of an unknown character is the lowest score minus this.
_UNKNOWN_PENALTY = 10.0


class UnigramTokenizer(Tokenizer):
    """Normalizes characters, marks spaces, and splits text into the tokens with the highest total score."""

    kind: ClassVar[str] = "ugm"

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        vocabulary = Vocabulary.from_metadata(metadata)
        self._scores = _scores(metadata, vocabulary)
        self._add_prefix: bool = value(metadata, "add_space_prefix", bool, False)
        self._merge_spaces: bool = value(metadata, "remove_extra_whitespaces", bool, False)
        super().__init__(
            metadata,
            vocabulary,
            special=SpecialTokens.from_metadata(metadata, vocabulary, eos=1, unk=2),
            add_bos=False,
            add_eos=True,
            space_prefix=self._add_prefix or self._merge_spaces,
        )
        if self.unk is None:
            raise TokenizerError(f"{PREFIX}unknown_token_id is missing; Unigram needs it")
        self._unknown = [self.unk]
        self._charsmap_bytes = metadata.get(PREFIX + "precompiled_charsmap")

    @cached_property
    def _charsmap(self) -> Charsmap:
        return Charsmap(self._charsmap_bytes)

    @cached_property
    def _lattice(self) -> Lattice:
        vocabulary = self.vocabulary
        normal = [score for text, score in self._scores.items() if vocabulary.ids[text] not in vocabulary.user_defined]
        ids = [vocabulary.ids[text] for text in self._scores]
        return Lattice(self._scores, ids, min(normal, default=0.0) - _UNKNOWN_PENALTY)

    def _encode(self, text: str) -> list[int]:
        return self._lattice.encode(self._spaced(self._charsmap.normalize(text)), lambda run: self._unknown)

    def _spaced(self, text: str) -> str:
        """Replace spaces by ``▁``: one before each word, or all of them and one before the first word."""
        if self._merge_spaces:
            return "".join(SPACE + word for word in text.split(" ") if word)
        words = text.lstrip(" ")
        if self._add_prefix and words:
            text = text[: len(text) - len(words)] + " " + words
        return text.replace(" ", SPACE)

    def _decode(self, text: str) -> bytes:
        return text.replace(SPACE, " ").encode()


def _scores(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, float]:
    """Scores of the tokens that text can consist of: all except control, unknown and byte tokens.

    Those that users defined have the best one, 0.
    """
    hidden = vocabulary.hidden | vocabulary.byte
    scores = finite_scores(metadata, len(vocabulary))
    return {
        text: 0.0 if token in vocabulary.user_defined else scores[token]
        for text, token in vocabulary.ids.items()
        if token not in hidden
    }
