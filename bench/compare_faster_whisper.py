"""Compare transcripts with faster-whisper: word errors and processor time, text by text in turns.

    python bench/compare_faster_whisper.py MODEL.gguf CTRANSLATE2_FOLDER PYTHON [--threads 2] [--beams 1] [--texts 5]

MODEL.gguf is converted from the folder; PYTHON runs faster-whisper, from an environment of its own. Speech is made by
espeak-ng from ``spoken_texts.json``. Prints the errors of each language, and the median ratio of processor times.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TEXTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "spoken_texts.json").read_text())
LOOP = """
for line in sys.stdin:
    path, language = json.loads(line)
    began = time.process_time()
    text = transcribed(path, language)
    print(json.dumps([time.process_time() - began, text]), flush=True)
"""
PUMICE = """
import json, sys, time
import pumice
model = pumice.load(sys.argv[1], backend="cpu", config={"cpu": {"threads": int(sys.argv[2])}})
def transcribed(path, language):
    return model.speech.transcribe(path, language=language).text
"""
FASTER = """
import json, sys, time
from faster_whisper import WhisperModel
model = WhisperModel(sys.argv[1], device="cpu", compute_type="int8", cpu_threads=int(sys.argv[2]))
def transcribed(path, language):
    segments, _ = model.transcribe(path, language=language, beam_size=int(sys.argv[3]))
    return "".join(segment.text for segment in segments)
"""


class Worker:
    """A process that transcribes files."""

    def __init__(self, python: str, program: str, *arguments: str) -> None:
        command = [python, "-c", program + LOOP, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def transcribe(self, path: Path, language: str) -> tuple[float, str]:
        """Return the processor's seconds, and the text."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([str(path), language]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._process.args[0]} exited; see its output above")  # type: ignore[index]
        seconds, text = json.loads(line)
        return seconds, text


def speak(text: str, language: str, path: Path) -> None:
    """Write a text as speech."""
    subprocess.run(["espeak-ng", "-v", language, "-w", str(path), text], check=True)


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def errors(expected: list[str], actual: list[str]) -> int:
    """Return the words to insert, leave out or replace (Levenshtein 1966)."""
    row = list(range(len(actual) + 1))
    for i, word in enumerate(expected, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(actual, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--texts", type=int, default=5, help="texts of each language")
    args = parser.parse_args()
    own = Worker(sys.executable, PUMICE, args.model, str(args.threads))
    other = Worker(args.python, FASTER, args.folder, str(args.threads), str(args.beams))
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        speak("The first transcript also loads.", "en", path)
        for worker in (own, other):
            worker.transcribe(path, "en")
        for language, texts in TEXTS.items():
            n_words, n_own, n_other = 0, 0, 0
            for text in texts[: args.texts]:
                speak(text, language, path)
                (seconds, mine), (others, theirs) = (worker.transcribe(path, language) for worker in (own, other))
                ratios.append(others / seconds)
                n_words += len(words(text))
                n_own += errors(words(text), words(mine))
                n_other += errors(words(text), words(theirs))
            print(f"{language}: {n_words} words, {n_own} errors, faster-whisper {n_other}", flush=True)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"speed relative to faster-whisper's in processor time: {middle:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
