r"""Pre-tokenizers of byte-level BPE, which split text into words before merging: one per row of ``ROWS``.

To add one, add a row (or a name to a row): ``names`` are the values of the GGUF key ``tokenizer.ggml.pre``,
``patterns`` the ``Split`` patterns of the model's ``tokenizer.json``, in order. Each pattern splits the pieces of the
previous one: a match is a piece, and so is the text between two matches. The syntax is Oniguruma's, as in Hugging
Face ``tokenizers``, which runs them.

A case-insensitive ``(?i:'s)`` of a model is written ``'[sS]`` here, because Unicode folds ``ſ`` to ``s``. Patterns are
the models' own, even if llama.cpp approximates them. It does so for the o200k family (gpt-4o, tekken, kimi-k2, …),
deepseek-llm and -coder, afmoe and superbpe: its regular expressions support capitals, digits and white space only in
ASCII, apart from one space, and its groups of digits keep the text before them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pumice.errors import TokenizerError
from pumice.wording import did_you_mean, documentation_page


@dataclass(frozen=True)
class PreTokenizer:
    """The patterns that split text into words, and further properties of a pre-tokenizer."""

    names: tuple[str, ...] = ()
    """Names in ``ROWS``; a plugin's pre-tokenizer has the name that it is registered under."""
    patterns: tuple[str, ...] = ()
    ignore_merges: bool = False
    """A word that is a token is not merged."""
    add_bos: bool = False
    """Start prompts with BOS if the file does not specify it."""
    force_bos: bool = False
    """Start prompts with BOS whatever the file specifies."""
    add_sep: bool = False
    """Join pairs of texts by SEP if the file does not specify it."""
    has_default_bos: bool = True
    """BOS is token 11 (as in the first byte-level files) if the file does not name one."""
    byte_level: bool = True
    """Tokens spell bytes (GPT-2); otherwise they are plain text, and ``<0xNN>`` for bytes."""
    marks_spaces: bool = False
    """Spaces are replaced by ``▁`` before text is split, and in tokens."""
    merges_optional: bool = False
    """The file may have no merges: words that are not tokens are spelled by bytes."""
    newline_tokens: bool = False
    """A run of newlines that is a token stays whole even if no merge forms it."""


def _any(*alternatives: str) -> str:
    return "|".join(alternatives)


_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKED_WORD = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_PATH_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_LINES = r"\s*[\r\n]+"
_SPACES = r"\s+(?!\S)|\s+"

# Words of the o200k family: capitals, then small letters, so that "camelCase" is two words.
_HEAD, _UPPER, _LOWER = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_WORD = _any(_HEAD + _UPPER + "*" + _LOWER + "+", _HEAD + _UPPER + "+" + _LOWER + "*")
_CASED_CONTRACTED = _any(
    _HEAD + _UPPER + "*" + _LOWER + "+" + _CONTRACTION + "?",
    _HEAD + _UPPER + "+" + _LOWER + "*" + _CONTRACTION + "?",
)

_GPT2 = _any("'s|'t|'re|'ve|'m|'ll|'d", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", _SPACES)
_LLAMA3 = _any(_CONTRACTION, _WORD, r"\p{N}{1,3}", _SYMBOLS, _LINES, _SPACES)
_QWEN2 = _any(_CONTRACTION, _WORD, r"\p{N}", _SYMBOLS, _LINES, _SPACES)
_O200K = _any(_CASED_CONTRACTED, r"\p{N}{1,3}", _PATH_SYMBOLS, _LINES, _SPACES)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_NEWLINES = r"[^\n]+|\n+"
# Groups of three digits counted from the right, as in 1 234 567.
_THOUSANDS = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"

_ASCII_PUNCTUATED = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_DEEPSEEK_WORD = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    _any(_ASCII_PUNCTUATED, _DEEPSEEK_WORD, r" ?[\p{P}\p{S}]+[\r\n]*", _LINES, _SPACES),
)
_SPARK = (
    *_DEEPSEEK3[:2],
    _any(_ASCII_PUNCTUATED, _DEEPSEEK_WORD, r" ?[\p{P}\p{S}]+", r"[\r\n]", _SPACES),
    r"\p{N}",
)
_AFMOE = (
    _THOUSANDS,
    "[一-鿿㐀-䶿\uf900-\ufaff぀-ゟ゠-ヿ\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff"
    "\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff가-\ud7af\u1100-\u11ff]+",
    _DEEPSEEK3[2],
)

# Letters that have case, of the Unicode version that the model was made with.
_DEEPSEEK_LLM_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+"

_HAN_FREE_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_HAN_FREE_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_KIMI_K2 = _any(
    r"\p{Han}+",
    _HEAD + _HAN_FREE_UPPER + "*" + _HAN_FREE_LOWER + "+" + _CONTRACTION + "?",
    _HEAD + _HAN_FREE_UPPER + "+" + _HAN_FREE_LOWER + "*" + _CONTRACTION + "?",
    r"\p{N}{1,3}",
    _SYMBOLS,
    _LINES,
    _SPACES,
)

ROWS: tuple[PreTokenizer, ...] = (
    PreTokenizer(
        ("default",), (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
    ),
    PreTokenizer(
        (
            "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
        ),
        (_LLAMA3,), ignore_merges=True, add_bos=True,
    ),
    PreTokenizer(("dbrx", "smaug-bpe"), (_LLAMA3,)),
    PreTokenizer(("glm4", "glm5"), (_LLAMA3,), ignore_merges=True, has_default_bos=False),
    PreTokenizer(("chatglm-bpe",), (_LLAMA3,), has_default_bos=False),
    PreTokenizer(
        ("jais-2",),
        (
            _any(_CONTRACTION, _WORD, r"\p{N}{1,3}", _SYMBOLS, _LINES)
            + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
            + r"|\s{1,2}(?!\S)|\s{1}",
        ),
    ),
    PreTokenizer(
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
        (_QWEN2,),
    ),
    PreTokenizer(("ufakzeka",), (_any(_WORD, r"\p{N}", _SYMBOLS, _LINES, _SPACES),)),
    PreTokenizer(("laguna",), (_NEWLINES, _QWEN2)),
    PreTokenizer(
        ("qwen35",),
        (_any(_CONTRACTION, _MARKED_WORD, r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _LINES, _SPACES),),
    ),
    PreTokenizer(
        ("seed-coder",), (_any(_CONTRACTION, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _LINES, _SPACES),)
    ),
    PreTokenizer(
        ("bailingmoe", "bailingmoe2", "llada-moe"),
        (
            _any(
                r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])", r"[^\r\n\p{L}\p{N}]?+\p{L}+", r"\p{N}",
                r" ?[^\s\p{L}\p{N}]++[\r\n]*", r"\s*[\r\n]", _SPACES,
            ),
        ),
    ),
    PreTokenizer(
        ("exaone-moe",),
        (
            _any(
                _CONTRACTION, r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", r"\p{N}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]?", r"\s*[\r\n]", _SPACES,
            ),
        ),
    ),
    PreTokenizer(
        ("minicpm5",),
        (r"\p{N}{1,3}", _any(_CONTRACTION, _WORD, r"\p{N}+", _SYMBOLS, _LINES, _SPACES)), ignore_merges=True,
    ),
    PreTokenizer(
        (
            "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum",
            "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
        ),
        (_GPT2,),
    ),
    PreTokenizer(("jina-v1-en", "jina-v2-code", "roberta-bpe"), (_GPT2,), add_sep=True),
    PreTokenizer(
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"),
        (r"\p{N}", _GPT2),
    ),
    PreTokenizer(("falcon",), (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    PreTokenizer(
        ("deepseek-llm",),
        (
            r"[\r\n]", rf"\s?[{_DEEPSEEK_LLM_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+\z",
            _DEEPSEEK_CJK, r"\p{N}+",
        ),
    ),
    PreTokenizer(("deepseek-coder",), (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")),
    PreTokenizer(("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"), _DEEPSEEK3),
    PreTokenizer(("spark2_5",), _SPARK),
    PreTokenizer(("afmoe",), _AFMOE),
    PreTokenizer(
        ("youtu",),
        (
            "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
            _any(_CASED_CONTRACTED, r"\p{N}", _PATH_SYMBOLS, _LINES, _SPACES),
        ),
        ignore_merges=True,
    ),
    PreTokenizer(("bloom", "poro-chat", "gpt3-finnish"), (_BLOOM,)),
    PreTokenizer(("viking",), (_BLOOM, r"\p{N}")),
    PreTokenizer(
        ("tekken",), (_any(_CASED_WORD, r"\p{N}", _PATH_SYMBOLS, _LINES, _SPACES),), ignore_merges=True, add_bos=True
    ),
    PreTokenizer(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), (_O200K,)),
    PreTokenizer(("granite-embed-multi-97m",), (_O200K,), ignore_merges=True),
    PreTokenizer(("tiny_aya", "cohere2moe"), (r"\d{1,3}(?=(?:\d{3})*\b)", _O200K)),
    PreTokenizer(("kimi-k2",), (_KIMI_K2,), merges_optional=True),
    PreTokenizer(("superbpe",), (r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    PreTokenizer(
        ("chameleon",),
        (
            r"<sentinel:[0-9]+>", r"IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", _GPT2,
        ),
        add_bos=True,
    ),
    PreTokenizer(
        ("gemma4", "granite-embed-multi-311m"),
        (_NEWLINES,), force_bos=True, byte_level=False, marks_spaces=True, newline_tokens=True,
    ),
    PreTokenizer(("sarvam-moe",), (_NEWLINES,), byte_level=False, marks_spaces=True),
    PreTokenizer(("whitespace",), (r"\S+",), byte_level=False),
)  # fmt: skip

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {name: row for row in ROWS for name in row.names}
"""Pre-tokenizers by name, the value of ``tokenizer.ggml.pre``."""


def pre_tokenizer(name: str, known: Mapping[str, PreTokenizer] = PRE_TOKENIZERS) -> PreTokenizer:
    """Return the pre-tokenizer with a name.

    Raises:
        TokenizerError: The name is unknown.
    """
    if name not in known:
        raise TokenizerError(
            f"tokenizer.ggml.pre: unknown pre-tokenizer {name!r}{did_you_mean(name, known)}; "
            f"{len(known)} are known; a plugin can add its patterns: see {documentation_page('plugins.md')}"
        )
    return known[name]
