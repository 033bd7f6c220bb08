"""Make tests/fixtures/whisper: transformers' logits and attention of a tiny Whisper, and CTranslate2's file of it.

    python tests/make_fixtures/whisper.py     (needs torch, transformers, ctranslate2 and safetensors)

Weights follow from the names of tensors (tests/checkpoints.py). The spectrogram is computed in float64.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from ctranslate2.converters import TransformersConverter
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from checkpoints import weights, write_tokenizer
from hearing_models import RATE, SECONDS, sound
from whisper_models import CONFIG, DECODED, FIXTURES, GENERATION, N_VOCAB, ROWS, STEP, write_tokens


def features(samples):
    """Return the spectrogram ``[1, mels, 3000]``, computed without torch."""
    extractor = WhisperFeatureExtractor(feature_size=CONFIG["num_mel_bins"])
    padded = np.pad(samples, (0, 30 * RATE - len(samples)))[None]
    return torch.tensor(np.asarray(extractor._np_extract_fbank_features(padded, "cpu")))


@torch.no_grad()
def main():
    FIXTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = WhisperConfig(**{key: value for key, value in CONFIG.items() if "suppress" not in key})
        WhisperForConditionalGeneration(config).save_pretrained(folder)
        with safe_open(folder / "model.safetensors", "np") as file:
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        values = {key: torch.tensor(weights(key, shape)) for key, shape in shapes.items()}
        save_file(values, folder / "model.safetensors", {"format": "pt"})
        (FIXTURES / "shapes.json").write_text(json.dumps(shapes) + "\n")
        model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        given = {"input_features": features(sound(SECONDS)).float(), "decoder_input_ids": torch.tensor([DECODED])}
        model.set_attn_implementation("eager")
        made = model(**given, output_attentions=True)
        logits = made.logits[0].numpy()
        heads = [made.cross_attentions[layer][0, head].numpy() for layer, head in GENERATION["alignment_heads"]]
        assert logits.shape == (len(DECODED), N_VOCAB)
        np.savez_compressed(FIXTURES / "logits.npz", logits=logits[:, ::STEP], attention=np.stack(heads)[:, :, :ROWS])
        write_tokenizer(folder, "bpe")
        write_tokens(folder)
        config = json.loads((folder / "generation_config.json").read_text())
        (folder / "generation_config.json").write_text(json.dumps(config | GENERATION | {"lang_to_id": {}}))
        out = folder / "out"
        TransformersConverter(str(folder)).convert(out, quantization="int8_float16", force=True)
        for file in ("model.bin", "config.json"):
            (FIXTURES / file).write_bytes((out / file).read_bytes())


if __name__ == "__main__":
    main()
