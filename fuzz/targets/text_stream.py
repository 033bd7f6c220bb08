"""Text of a stream: equal to the whole text up to the first stop string; shown text is never taken back."""

from collections.abc import Iterable

from fuzz.draw import Draw
from pumice.engine.requests.outputs import TextStream
from pumice.tokenizers import Tokenizer
from tokenizer_fixtures import small

MODULES = ("pumice.engine.requests.outputs", "pumice.tokenizers.incremental")
MAX_LEN = 200
TOKENS = (b"aa", b"ab", b"\n\n", b"</s>", "é".encode(), "🚀".encode())


def seeds() -> Iterable[bytes]:
    yield b"\0\2\3aab\2\n\nxaaab y\n\nz"
    yield b"\1\1\1\xc3\xa9\xc3 \xe2\x82\xac"


def check(data: bytes) -> None:
    draw = Draw(data)
    tokenizer = small("spm-no-prefix")
    stops = [draw.text(draw.below(6)) for _ in range(draw.below(4))]
    ids = [tokenizer.vocabulary.ids[f"<0x{byte:02X}>"] for byte in draw.rest()]
    stream = TextStream(tokenizer, stops)
    shown = ""
    for token in ids:
        shown += stream.push(token)
        if stream.stopped:
            break
    shown += stream.finish()
    expected = _cut(tokenizer, ids, [stop for stop in stops if stop])
    assert shown == expected, (shown, expected)


def _cut(tokenizer: Tokenizer, ids: list[int], stops: list[str]) -> str:
    """Return the text up to the first complete stop string; the leftmost if one token completes several."""
    decoder = tokenizer.decoder(continues=True)
    text = ""
    for token in [*ids, None]:
        text += decoder.flush() if token is None else decoder.push(token)
        if positions := [text.find(stop) for stop in stops if stop in text]:
            return text[: min(positions)]
    return text
