"""Transcription of speech with Whisper: windows of a sound, decoded by ordinary requests, to segments with times."""

from pumice.transcription.formats import FORMATS, write
from pumice.transcription.segments import Segment
from pumice.transcription.transcript import TranscribeKeywords, TranscribeOptions, Transcriber, Transcript
from pumice.transcription.vocabulary import LANGUAGES, TranscriptTokens
from pumice.transcription.words import Word

__all__ = [
    "FORMATS",
    "LANGUAGES",
    "Segment",
    "TranscribeKeywords",
    "TranscribeOptions",
    "Transcriber",
    "Transcript",
    "TranscriptTokens",
    "Word",
    "write",
]
