"""Images, sounds and videos of prompts, as token ids and embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pumice.architecture import MediaKind
from pumice.chat.mixed import MEDIA, PromptPart, encode_media, tokenize_parts, within
from pumice.chat.mixed import Media as OneMedia
from pumice.embeddings import Embeddings
from pumice.engine.messages import PreparedText
from pumice.engine.requests.arguments import check_ids, token_ids
from pumice.errors import PromptTooLongError, RequestError
from pumice.frontend.encoded_media import MAX_BYTES, EncodedMedia
from pumice.frontend.engine import ModelEngine
from pumice.frontend.prompts import contains, mixed_parts
from pumice.media.audio import Audio, SoundBudget, samples_of
from pumice.media.images import MAX_IMAGES, pixels_of
from pumice.media.videos import Video, VideoForm, form_of, frames_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Text = str | Sequence[int] | OneMedia | Sequence[str | OneMedia] | PreparedText
"""A text, its token ids, an image or a sound, or several of them in order."""
Texts = str | OneMedia | Sequence[Text]

WRONG_TEXT = "an input to embed must be a text, a list of token ids, an image or sound, or a list of texts and these"


class Media:
    """Images, sounds and videos of a model's prompts: ``model.media``. What stands for the latest ones is kept."""

    def __init__(self, engine: ModelEngine) -> None:
        self._engine = engine
        self._encoded = EncodedMedia(max(MAX_BYTES, engine.facts.media_bytes))

    def check(self, kind: MediaKind) -> None:
        """Raise RequestError for a model that does not take "image", "audio" or "video"."""
        self._engine.media.check(kind)

    def encode(self, media: OneMedia, salt: str, together: SoundBudget) -> Sequence[PromptPart]:
        """Return the texts and embeddings that stand for an image, a sound or a video in a prompt.

        Args:
            media: What is encoded.
            salt: Salt of the request's cache.
            together: Counts the sounds of the request.

        Raises:
            RequestError: The file cannot be read, or the model has no projector for it.
        """
        engine = self._engine.media
        if isinstance(media, Audio):
            engine.check("audio")
            together.check_bytes(media)
            rate = engine.sound_rate
            return self._encoded.get(
                media.at(rate),
                lambda content: together.checked(samples_of(content, rate), rate),
                partial(engine.encode, "audio"),
                salt,
            )
        if isinstance(media, Video):
            engine.check("video")
            salt = f"{salt}\0{media.rate}"  # decides which frames the model sees
            return self._encoded.get(
                media,
                partial(self._decode_video, media.rate),
                lambda video: engine.encode("video", video[1], video[0]),
                salt,
            )
        engine.check("image")
        return self._encoded.get(media, pixels_of, partial(engine.encode, "image"), salt)

    def read(self, parts: Sequence[str | OneMedia], salt: str = "") -> tuple[list[int], list[Embeddings]]:
        """Return the token ids of texts, images and sounds in order, with those of media left open, and the media.

        Raises:
            RequestError: Media cannot be read, or do not fit.
        """
        if sum(not isinstance(part, str) for part in parts) > MAX_IMAGES:
            raise RequestError(f"the prompt has more than {MAX_IMAGES} images, sounds and videos")
        tokenizer, n_ctx = self._engine.tokenizer(), self._engine.facts.n_ctx
        tokenizer.check_fits([part for part in parts if isinstance(part, str)], n_ctx)
        ends = [tokenizer.eos] if tokenizer.add_eos and tokenizer.eos is not None else []

        def first(text: str) -> list[int]:
            ids = tokenizer.tokenize(text)
            return ids[: len(ids) - len(ends)]

        encoded = within(encode_media(parts, partial(self.encode, salt=salt, together=SoundBudget())), n_ctx)
        ids, placed = tokenize_parts(encoded, first, tokenizer.tokenize_following)
        return ids + ends, placed

    def prepare(self, texts: Texts, truncate: bool = False) -> list[PreparedText]:
        """Tokenize texts, and encode their images and sounds, without embedding them.

        Pass the result to ``Model.embed`` or ``aembed`` in place of the texts; any thread may prepare it.

        Args:
            texts: As in ``Model.embed``.
            truncate: As in ``Model.embed``.

        Raises:
            RequestError: A text does not fit, or an image or a sound cannot be read.
        """
        if isinstance(texts, (str, *MEDIA)):
            return [self._prepare_one(texts, truncate)]
        if not isinstance(texts, Sequence):
            raise RequestError(f"embed takes a text or a list of texts, not {type(texts).__name__}")
        return [self._prepare_one(text, truncate) for text in texts]

    def _prepare_one(self, text: Text, truncate: bool) -> PreparedText:
        if isinstance(text, PreparedText):
            check_text(self._engine, list(text.tokens))
            return text
        if isinstance(text, str):
            ids = self._cut(text) if truncate else self._engine.tokenizer().tokenize(text)
            return PreparedText(check_text(self._engine, ids))
        parts = [text] if isinstance(text, MEDIA) else text
        if not contains(parts, (str, *MEDIA)):
            ids = token_ids(parts, WRONG_TEXT)
            return PreparedText(check_text(self._engine, ids[: self._engine.facts.n_ctx] if truncate else ids))
        ids, spans = self.read(mixed_parts(parts, WRONG_TEXT))
        return PreparedText(check_text(self._engine, ids), spans)

    def _cut(self, text: str) -> list[int]:
        """Return the tokens of a text that fit the context, with those that the model expects at both ends."""
        n_ctx, tokenizer = self._engine.facts.n_ctx, self._engine.tokenizer()
        ids, around = tokenizer.tokenize(text[: n_ctx * tokenizer.longest]), tokenizer.tokenize("")
        if len(ids) <= n_ctx:
            return ids
        end = next(end for end in (around[i:] for i in range(len(around) + 1)) if ids[len(ids) - len(end) :] == end)
        return [*ids[: n_ctx - len(end)], *end]

    def _decode_video(
        self, rate: float | None, content: bytes | NDArray[np.uint8]
    ) -> tuple[VideoForm, NDArray[np.uint8]]:
        form = form_of(content, rate)
        return form, frames_of(content, form, self._engine.media.plan_video(form))


def check_text(engine: ModelEngine, ids: list[int]) -> list[int]:
    """Return the token ids of a text to embed or to rank. Raises RequestError for none, and too many."""
    check_ids(ids, engine.facts.n_vocab)
    if not ids:
        raise RequestError("a text to embed has no tokens: give some text")
    if len(ids) > engine.facts.n_ctx:
        raise PromptTooLongError(len(ids), engine.facts.n_ctx)
    return ids
