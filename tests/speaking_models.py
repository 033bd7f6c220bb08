"""Tiny models that speak: a llama that generates audio codes of OuteTTS, and a vocoder beside it; and a voice."""

from pathlib import Path
from typing import Any

import numpy as np

from gguf_files import byte_tokenizer, tiny_llama
from tiny_encoders import wavtokenizer

FIXTURE = Path(__file__).parent / "fixtures" / "speech_prompts.json"
FRAMES = (7, 34)  # of the vocoder's last step
TEXTS = [
    "Hello world.",
    "The quick brown fox jumps over the lazy dog!",
    "What time is it? It is 12 o'clock.",
    "Don't stop; it's well-known (really).",
    "I have 1234 apples and 21 pies...",
    "A/B tests_are fun - mostly",
    "wait ... what ?",
    "semi;colon:here",
    "one  two\nthree",
    "100% of $5",
]
N_CODES = 32
N_FFT = 16
HOP = N_FFT // 4  # samples of a code
_NAMES = {
    "0.2": ["text_sep", "code_start", "code_end"],
    "0.3": ["space", "period", "comma", "exclamation_mark", "question_mark", "double_quote"],
}
VOICE: dict[str, Any] = {
    "text": "The day, it's over!",
    "words": [
        {"word": word, "duration": round(0.1 + 0.05 * i, 2), "codes": [i, 2 * i + 1]}
        for i, word in enumerate(["the", "day", "its", "over"])
    ],
}


def vocabulary(version: str) -> list[str]:
    """Return the tokens: bytes, special ones, and audio codes at the end."""
    names = ["im_start", "im_end", "text_start", "text_end", "audio_start", "audio_end", *_NAMES[version]]
    return [*byte_tokenizer(259)["tokenizer.ggml.tokens"], *(f"<|{name}|>" for name in [*names, *range(N_CODES)])]


def write_speaking(folder: Path, version: str = "0.2", vocoder: bool = True) -> Path:
    """Write a model whose every token is an audio code, and its vocoder."""
    tokens = vocabulary(version)
    n = len(tokens)
    keys = byte_tokenizer(259)
    more = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [*keys["tokenizer.ggml.scores"], *(-float(i) for i in range(n - 259))],
        "tokenizer.ggml.token_type": [*keys["tokenizer.ggml.token_type"], *[3] * (n - 259)],
    }
    output = (np.random.default_rng(5).standard_normal((n, 64)) * 0.5).astype(np.float32)
    output[: n - N_CODES] = 0
    folder.mkdir(parents=True, exist_ok=True)
    if vocoder:
        wavtokenizer(N_FFT + 2).write(folder / "WavTokenizer-tiny-F32.gguf")
    return tiny_llama(
        folder / "outetts.gguf", n_vocab=n, n_ctx=1024, n_layer=1, tokenizer=False, more=keys | more, output=output
    )


def frames() -> np.ndarray:
    """Return logarithms of magnitudes, and phases, by a formula; a magnitude is beyond the limit."""
    rows, columns = np.indices(FRAMES)
    values = np.sin(1.7 * rows + 0.9 * columns) * np.where(columns < FRAMES[1] // 2, 1.5, 3.0) - 1.0
    values[3, 2] = 6.0
    return values.astype(np.float32)
