"""Make tests/fixtures/speech_prompts.json: prompts of the package outetts, and samples of its vocoder's last step.

    python tests/make_fixtures/speech_prompts.py path/to/outetts

    (needs torch, inflect, uroman, mecab-python3, unidic-lite, loguru; the path is the folder of outetts 0.3.3 unpacked)

Its packages import models that are not needed, so that only the modules of prompts and of the inverse transform are
imported.
"""

import json
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import inflect
import numpy as np
import torch

from speaking_models import FIXTURE, FRAMES, TEXTS, VOICE, frames

NUMBERS = [
    *map(str, range(130)), "999", "1000", "1001", "1100", "12345", "1000000", "2000500", "987654321", "3.14", "0.05",
]  # fmt: skip


def stand_in(root: Path, name: str) -> None:
    """Make an empty package of a folder, whose own modules can be imported."""
    module = types.ModuleType(name)
    module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = module


def processors(root: Path):
    for name in ("outetts", "outetts.version", "outetts.version.v1", "outetts.version.v2"):
        stand_in(root, name)
    from outetts.version.v1 import prompt_processor as first
    from outetts.version.v2 import prompt_processor as second

    old = first.PromptProcessor.__new__(first.PromptProcessor)  # its __init__ reads a tokenizer
    old.bos, old.lec, old.wakati_use, old.languages = "<|im_start|>", inflect.engine(), [], ["en"]
    names = ("text_start", "text_end", "audio_start", "audio_end", "code_start", "code_end", "text_sep")
    old.special_tokens = {name: f"<|{name}|>" for name in names} | {"audio_code": "<|{}|>", "time": "<|t_{:.2f}|>"}
    old.text_prompt = "{bos}\n{text_start}{words}{text_end}\n{audio_start}\n"
    new = second.PromptProcessor(None)
    return {
        "0.2": lambda text, voice: old.get_completion_prompt(text, "en", voice and {**voice, "language": "en"}),
        "0.3": lambda text, voice: new.get_completion_prompt(text, None, voice),
    }


def samples(root: Path) -> list[float]:
    stand_in(root / "wav_tokenizer" / "decoder", "decoder")
    from decoder.spectral_ops import ISTFT

    values = torch.tensor(frames()).T[None]
    magnitudes, phases = values.chunk(2, dim=1)
    spectrum = torch.clip(torch.exp(magnitudes), max=1e2) * (torch.cos(phases) + 1j * torch.sin(phases))
    n_fft = FRAMES[1] - 2
    return ISTFT(n_fft, n_fft // 4, n_fft)(spectrum)[0].tolist()


if __name__ == "__main__":
    root = Path(sys.argv[1])
    prompts = {
        version: [[prompt(text, voice) for voice in (None, VOICE)] for text in TEXTS]
        for version, prompt in processors(root).items()
    }
    words = inflect.engine().number_to_words
    made = {
        "prompts": prompts,
        "numbers": {n: words(n) for n in NUMBERS},
        "samples": np.round(samples(root), 9).tolist(),
    }
    FIXTURE.write_text(json.dumps(made, indent=0) + "\n")
