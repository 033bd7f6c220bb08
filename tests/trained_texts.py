"""What trained models read in tests, here and in the programs that results are compared with."""

from collections.abc import Callable

from pumice.check.text import TEXT as TEXT

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "  Spaces  and\ttabs\n\n\nand lines\r\n",
    "In 2026, 3.14159 * 1,000 = 3141.59; 0x1F is 31.",
    "def f(x: int) -> list[str]:\n    return [str(i) for i in range(x)]  # loop",
    "Größe, naïve, señor, Ελλάδα, Привет, שלום, 今日は世界, 안녕하세요",
    "Emoji: 🙂👍🏽👩‍👩‍👧‍👦 and e\u0301 combining",
    "https://example.com/a?b=c&d=%20#e user@example.org",
    "it's we'll I'D they've CAN'T don't",
)

PROMPT = "The capital of France is"

CHATS = (
    [{"role": "user", "content": "What is 2+2?"}],
    [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Hello!\nWho are you?"}],
    [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "Another one, please — größer."},
    ],
)

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]

SENTENCES = (
    "A man is eating food.", "A man eats a piece of bread.", "A girl is carrying a baby.", "A man rides a horse.",
    "A woman plays the violin.", "Someone plays an instrument.", "The stock market fell today.", "Shares lost value.",
    "It is raining outside.", "The weather is wet.", "Python is a programming language.", "Code is written by people.",
)  # fmt: skip
"""Pairs of sentences that mean much the same."""

NEEDLE = "The secret word of the old clockmaker is marmalade.\n"
FILLER = "The river was quiet, and the boats went by slowly under a grey sky. "
ASKED = "\nQuestion: What is the secret word of the old clockmaker? Answer: The secret word is"
WORD = " marmalade"
LONG = {"smollm2": 8_000, "gemma": 32_000}
"""Tokens of the long texts, which fill the contexts of training."""


def long_text(tokenize: Callable[[str], list[int]], n_tokens: int) -> list[int]:
    """Return tokens in which a fact stands first, and a question about it and the answer last, without BOS."""
    start, end = tokenize(NEEDLE), tokenize(ASKED + WORD)
    filler = tokenize(FILLER)
    n_between = n_tokens - len(start) - len(end)
    return [*start, *(filler * (n_between // len(filler) + 1))[:n_between], *end]
