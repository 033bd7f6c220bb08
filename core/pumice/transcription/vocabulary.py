"""The special tokens of Whisper's vocabularies, and the languages that they name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pumice.errors import RequestError
from pumice.wording import did_you_mean, show_python

STEP = 0.02  # seconds between the tokens of times
_FIRST = "<|endoftext|>"  # special tokens follow those of text
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")

_NAMES = (
    "af:afrikaans am:amharic ar:arabic as:assamese az:azerbaijani ba:bashkir be:belarusian bg:bulgarian bn:bengali "
    "bo:tibetan br:breton bs:bosnian ca:catalan cs:czech cy:welsh da:danish de:german el:greek en:english "
    "es:spanish et:estonian eu:basque fa:persian fi:finnish fo:faroese fr:french gl:galician gu:gujarati ha:hausa "
    "haw:hawaiian he:hebrew hi:hindi hr:croatian ht:haitian hu:hungarian hy:armenian id:indonesian is:icelandic "
    "it:italian ja:japanese jw:javanese ka:georgian kk:kazakh km:khmer kn:kannada ko:korean la:latin "
    "lb:luxembourgish ln:lingala lo:lao lt:lithuanian lv:latvian mg:malagasy mi:maori mk:macedonian ml:malayalam "
    "mn:mongolian mr:marathi ms:malay mt:maltese my:myanmar ne:nepali nl:dutch nn:nynorsk no:norwegian oc:occitan "
    "pa:punjabi pl:polish ps:pashto pt:portuguese ro:romanian ru:russian sa:sanskrit sd:sindhi si:sinhala "
    "sk:slovak sl:slovenian sn:shona so:somali sq:albanian sr:serbian su:sundanese sv:swedish sw:swahili ta:tamil "
    "te:telugu tg:tajik th:thai tk:turkmen tl:tagalog tr:turkish tt:tatar uk:ukrainian ur:urdu uz:uzbek "
    "vi:vietnamese yi:yiddish yo:yoruba yue:cantonese zh:chinese"
)
LANGUAGES: Mapping[str, str] = dict(re.findall(r"(\w+):(\w+)", _NAMES))
"""English names of languages by their codes."""
_CODES = {name: code for code, name in LANGUAGES.items()}


@dataclass(frozen=True)
class TranscriptTokens:
    """Ids of the special tokens.

    Attributes:
        end: ends a transcript; tokens before it are text.
        start: begins a transcript, ``previous`` the text before it.
        transcribe, translate: the task.
        no_speech: predicted behind ``start`` if nothing is said.
        first_time: the time 0.00; later times follow in steps of 0.02 seconds.
        languages: by code; empty for a model that knows English alone.
    """

    end: int
    start: int
    previous: int
    transcribe: int
    translate: int
    no_speech: int
    first_time: int
    languages: Mapping[str, int]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """Return the tokens of a model. Raises RequestError if it lacks one."""
        tokens = metadata.get("tokenizer.ggml.tokens")
        words = tokens if isinstance(tokens, list) else []
        first = words.index(_FIRST) if _FIRST in words else len(words)
        ids = {text: id for id, text in enumerate(words[first:], first)}

        def find(*names: str) -> int:
            for name in names:
                if f"<|{name}|>" in ids:
                    return ids[f"<|{name}|>"]
            raise RequestError(f"transcribe: the model's vocabulary has no token <|{names[0]}|>")

        found = {match[1]: id for text, id in ids.items() if (match := _LANGUAGE.fullmatch(text))}
        return cls(
            end=find("endoftext"),
            start=find("startoftranscript"),
            previous=find("startofprev"),
            transcribe=find("transcribe"),
            translate=find("translate"),
            no_speech=find("nospeech", "nocaptions"),
            first_time=find("notimestamps") + 1,
            languages=found if metadata.get(f"{metadata['general.architecture']}.multilingual", True) else {},
        )

    def seconds(self, token: int) -> float:
        """Return the time that a token stands for."""
        return (token - self.first_time) * STEP

    def language(self, named: str | None) -> str | None:
        """Return the code of a language, given as such or as its English name; None if it is to be detected.

        Raises RequestError for one that the model does not know.
        """
        if not named:
            return None if self.languages else "en"
        code = named.lower() if isinstance(named, str) else ""
        code = _CODES.get(code, code)
        if code in self.languages or (code == "en" and not self.languages):
            return code
        if not self.languages:
            raise RequestError(f"language: the model knows English alone, not {show_python(named)}")
        raise RequestError(
            f"language: {show_python(named)} is no language of the model{did_you_mean(code, self.languages)}; "
            "give a code such as 'en', or a name such as 'english'"
        )

    def prompt(self, language: str, task: str) -> list[int]:
        """Return the tokens that begin a transcript."""
        if not self.languages:
            return [self.start]
        return [self.start, self.languages[language], self.translate if task == "translate" else self.transcribe]
