"""The base class of tokenizers: special tokens, BOS and EOS, and conversion of ids to text."""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import index
from typing import Any, ClassVar, NoReturn

from pumice.errors import PromptTooLongError, RequestError, TokenizerError
from pumice.guard import UNEXPECTED, raise_named
from pumice.tokenizers.incremental import IncrementalDecoder
from pumice.tokenizers.partition import Partition
from pumice.tokenizers.pre_tokenizers import PreTokenizer
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import Vocabulary, is_unicode, value
from pumice.wording import show_python

_FEW_CHARACTERS = 1 << 16  # length up to which texts are tokenized without a check
_PER_TOKEN = 8  # characters per token, which few texts exceed
_CHUNK = 1 << 14  # characters


def title_of(kind: type) -> str:
    """Return the name of a tokenizer's class with its module, for messages."""
    return f"{kind.__module__}.{kind.__qualname__}"


class Tokenizer(ABC):
    """Converts text to token ids and back.

    Attributes:
        n_vocab: Number of tokens.
        bos, eos, sep: Ids of the tokens that begin, end and separate texts, or None.
        eog: Ids of all tokens that end a generation.
        fim: Ids of fill-in-the-middle tokens, by name: fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep.
        suppressed: Ids of tokens that are never generated.
        add_bos, add_eos, add_sep: True if the model expects the token around its input.
        chat_template: The Jinja template of the file's ``tokenizer.chat_template``, or None.
    """

    kind: ClassVar[str]
    """``"spm"``, ``"bpe"``, ``"wpm"``, ``"ugm"``, ``"rwkv"`` or ``"plamo2"``."""

    def __init__(
        self,
        metadata: Mapping[str, Any],
        vocabulary: Vocabulary,
        *,
        special: SpecialTokens,
        add_bos: bool,
        add_eos: bool = False,
        add_sep: bool = False,
        space_prefix: bool = False,
    ) -> None:
        """Initialize from a file's metadata; the flags are defaults for files that do not set them.

        Args:
            metadata: Metadata of the file.
            vocabulary: Vocabulary of the file.
            special: Special tokens of the file.
            add_bos: Add BOS before a text.
            add_eos: Add EOS after a text.
            add_sep: Add SEP between texts.
            space_prefix: The first token of a text begins with a space that is not in the text.
        """
        self.vocabulary = vocabulary
        self.n_vocab = len(vocabulary)
        self.bos, self.eos, self.sep, self.unk = special.bos, special.eos, special.sep, special.unk
        self.eog = special.eog
        self.fim = special.fim
        self.suppressed = special.suppressed
        self.add_bos: bool = value(metadata, "add_bos_token", bool, add_bos)
        self.add_eos: bool = value(metadata, "add_eos_token", bool, add_eos)
        self.add_sep: bool = value(metadata, "add_sep_token", bool, add_sep)
        if self.add_bos and self.bos is None:
            raise TokenizerError("the file asks for BOS before a text (add_bos_token) but names no bos_token_id")
        if self.add_eos and self.eos is None:
            raise TokenizerError("the file asks for EOS after a text (add_eos_token) but names no eos_token_id")
        template = metadata.get("tokenizer.chat_template")
        self.chat_template: str | None = template if isinstance(template, str) else None
        self._partition = Partition.from_metadata(metadata, vocabulary)
        self._space_prefix = space_prefix
        self._special, self._hidden = vocabulary.special, vocabulary.hidden
        self._pieces: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self.n_vocab} tokens>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a tokenizer cannot be pickled or copied, since it reads the model's mapped file; load the model in the "
            "other process and use its tokenizer"
        )

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], pre_tokenizers: Mapping[str, PreTokenizer]) -> "Tokenizer":
        """Return the tokenizer of a file; byte-level BPE takes its pre-tokenizer from ``pre_tokenizers``."""
        return cls(metadata)  # type: ignore[call-arg]  # a subclass reads the rest from the metadata

    def prepare(self) -> None:
        """Build what splits texts into tokens, which the first text would wait for."""
        self.tokenize("a")

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = True, *, mark: str = "") -> list[int]:
        """Return the ids of ``text``.

        Args:
            text: Any text.
            add_special: Add the tokens that the model expects around its input (BOS, EOS; CLS and SEP).
            parse_special: Read the spelling of a control token (``<|eot_id|>``) as that token. Set it to False for
                untrusted text. User-defined tokens are always recognized.
            mark: A character that is removed from the text. Spellings that contain it are not special tokens.

        Raises:
            RequestError: ``text`` is no string.
            TokenizerError: ``text`` has a lone surrogate.
        """
        if not isinstance(text, str):
            raise RequestError(f"tokenize takes a string, not {show_python(text)}")
        if not is_unicode(text):
            raise TokenizerError("the text to tokenize is not valid Unicode: it contains a lone surrogate")
        ids = self._before() if add_special else []
        parts = self._partition.split(text, parse_special)
        try:
            for part in parts:
                ids += [part] if isinstance(part, int) else self._encode(part.replace(mark, "") if mark else part)
            if not type(self).__module__.startswith("pumice."):  # a plugin's
                ids = self._checked(ids)
        except UNEXPECTED as error:
            raise_named(error, f"tokenizer {title_of(type(self))}: _encode")
        if add_special:
            ids += self._after()
        return ids

    def _checked(self, ids: Sequence[int]) -> list[int]:
        """Return ids as integers of Python. Raises TypeError or ValueError unless all are tokens."""
        ids = list(map(index, ids))
        if ids and not 0 <= min(ids) <= max(ids) < self.n_vocab:
            wrong = next(token for token in ids if not 0 <= token < self.n_vocab)
            raise ValueError(f"returned {wrong}, which is no token of {self.n_vocab}")
        return ids

    def tokenize_following(self, text: str, *, mark: str = "") -> list[int]:
        """Return the ids of a text that follows other text, without the space that some kinds add at the start.

        ``mark`` is that of ``tokenize``.
        """
        newline, both = (self.tokenize(part, add_special=False, mark=mark) for part in ("\n", "\n" + text))
        is_apart = both[: len(newline)] == newline
        return both[len(newline) :] if is_apart else self.tokenize(text, add_special=False, mark=mark)

    def check_fits(self, texts: Sequence[str], n_ctx: int) -> None:
        """Raise PromptTooLongError if texts clearly exceed ``n_ctx`` tokens together, without tokenizing them whole.

        Tokenizing costs time and memory per character. Texts that fit are never refused.
        """
        n_characters = sum(map(len, texts))
        if n_characters <= max(_FEW_CHARACTERS, _PER_TOKEN * n_ctx):
            return
        n_tokens = n_characters // self.longest
        if n_tokens > n_ctx:
            raise PromptTooLongError(n_tokens, n_ctx, exact=False)
        # Arbitrary cuts add a few tokens, so only twice the limit counts as too many.
        n_tokens = 0
        for text in texts:
            for begin in range(0, len(text), _CHUNK):
                n_tokens += len(self.tokenize(text[begin : begin + _CHUNK], add_special=False))
                if n_tokens > 2 * n_ctx:
                    raise PromptTooLongError(n_tokens // 2, n_ctx, exact=False)

    def detokenize(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Return the text of ``ids``; with ``special``, control tokens and the unknown token are spelled out.

        Raises:
            RequestError: ``ids`` are no integers.
            TokenizerError: An id is outside the vocabulary.
        """
        decoder = self.decoder(special=special)
        try:
            tokens = list(map(index, ids))
        except TypeError:
            raise RequestError(f"detokenize takes a list of token ids, not {show_python(ids)}") from None
        return "".join(map(decoder.push, tokens)) + decoder.flush()

    def decoder(self, *, special: bool | Container[int] = False, continues: bool = False) -> IncrementalDecoder:
        """Return a decoder for single tokens; its texts, joined, equal those of `detokenize`.

        Args:
            special: Spell out control tokens and the unknown token, all of them or those with the given ids.
            continues: The tokens follow others, as a completion does: a space at their start belongs to the text.
        """
        return IncrementalDecoder(
            self._piece if special is True else partial(self._shown_piece, shown=special or ()),
            at_start=self._space_prefix and not continues,
            starts_text=self._special if self._space_prefix else (),
        )

    def fill_in(self, prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
        """Return the prompt that lets a model write what stands between two texts, given as token ids.

        Raises:
            RequestError: The vocabulary has no tokens for that.
        """
        marks = [self.fim[name] for name in ("fim_pre", "fim_suf", "fim_mid") if name in self.fim]
        if len(marks) < 3:
            raise RequestError("suffix: this model cannot fill in text: its vocabulary has no marks of the parts")
        before, after, middle = marks
        bos = [self.bos] if self.add_bos and self.bos is not None else []
        return [*bos, before, *prefix, after, *suffix, middle]

    @cached_property
    def longest(self) -> int:
        """Characters of the longest token, at least 1.

        Text length divided by it bounds the number of tokens from below.
        """
        return max(1, *map(len, self.vocabulary.tokens))

    def token_text(self, token: int) -> str:
        """Return the spelling of a token in the vocabulary: ``▁the``, ``Ġthe``, ``<0x0A>``."""
        if not 0 <= token < self.n_vocab:
            raise TokenizerError(f"token {show_python(token)} is outside the vocabulary of {self.n_vocab} tokens")
        return self.vocabulary.tokens[token]

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes that a token adds to a text; control and unknown tokens add some only with ``special``."""
        return self._piece(token) if special or token not in self._hidden else b""

    def _piece(self, token: int) -> bytes:
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._render(token)
        return piece

    def _shown_piece(self, token: int, shown: Container[int]) -> bytes:
        return b"" if token in self._hidden and token not in shown else self._piece(token)

    def _render(self, token: int) -> bytes:
        text = self.token_text(token)
        if token in self._special:
            return text.encode()
        if token in self.vocabulary.silent:
            return b""
        if token in self.vocabulary.byte:
            return bytes.fromhex(text[3:5])
        try:
            piece = self._decode(text)
            if not isinstance(piece, bytes):
                raise TypeError(f"expected bytes, not {piece!r:.60}")
        except UNEXPECTED as error:
            raise_named(error, f"tokenizer {title_of(type(self))}: _decode")
        return piece

    def _before(self) -> list[int]:
        """Return the tokens that the model expects before a text."""
        return [self.bos] if self.add_bos and self.bos is not None else []

    def _after(self) -> list[int]:
        """Return the tokens that the model expects after a text."""
        return [self.eos] if self.add_eos and self.eos is not None else []

    @abstractmethod
    def _encode(self, text: str) -> list[int]:
        """Return the ids of a text between special tokens."""

    @abstractmethod
    def _decode(self, text: str) -> bytes:
        """Return the bytes of a normal token."""
