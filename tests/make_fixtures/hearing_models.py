"""Make tests/fixtures/hearing_models: tiny models that hear, by transformers: spectrograms, rows, and texts.

    python tests/make_fixtures/hearing_models.py path/to/llama.cpp [case...]     (needs torch and transformers)

A case is a configuration in cases.json; its weights follow from the names of tensors (tests/checkpoints.py). Stored
are shapes, spectrograms of sounds, rows of one, and the logits of the tokens after a prompt with it; also metadata and
digests of tensors of the projector that llama.cpp's converter writes. Those of KEPT stay as they are: their
encoders or projectors were written for them, in ``git show 553cf67a:tests/make_fixtures/hearing_models.py`` and, of
MiMo, f5c87526. llama.cpp's libmtmd computes their rows too (``libmtmd_sounds.py``).
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import WhisperFeatureExtractor
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4_unified.feature_extraction_gemma4_unified import Gemma4UnifiedAudioFeatureExtractor
from transformers.models.granite_speech.feature_extraction_granite_speech import GraniteSpeechFeatureExtractor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from llama_converter import projector

from checkpoints import weights, write_cases
from hearing_models import (
    CASES,
    FIXTURE,
    RATE,
    SECONDS,
    SOUND,
    published,
    sound,
    write_folder,
)

KEPT = ("mimo", "ultravox", "meralion", "gemma3n", "lfm2audio", "parakeet", "dots3note")
N_GENERATED = 4
MEL = {80: (0.3, 2.4), 128: (1.0,)}  # values a frame -> seconds of the sounds whose spectrograms are stored
STEP = 7  # of the frames that are stored
GLM_UNUSED = {
    "audio_encoder.audio_bos_eos_token.weight": [2, 64],
    "audio_encoder.whisper.embed_positions.weight": [1500, 16],
}


def spectrogram(samples, n_mels, **more):
    """Return transformers' features, computed without torch in float64, and their lengths."""
    extractor = WhisperFeatureExtractor(feature_size=n_mels)
    torch_features = extractor(samples, sampling_rate=RATE, return_attention_mask=True, return_tensors="np", **more)
    own = extractor.pad({"input_features": samples[None, :, None]}, padding=False)["input_features"]
    n = 160 * torch_features["input_features"].shape[-1]
    waveform = np.pad(own[0][:, 0], (0, n - own[0].shape[0]))[None]
    features = extractor._np_extract_fbank_features(waveform, "cpu")
    return torch.tensor(features), torch.tensor(torch_features["attention_mask"])


def make_model(kind, case):
    config = getattr(transformers, case["config_class"])(**case["config"])
    model_class = getattr(transformers, case.get("made_by", case["class"]))
    with tempfile.TemporaryDirectory() as folder:
        model_class(config).save_pretrained(folder)
        with safetensors.safe_open(Path(folder) / "model.safetensors", "np") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        values = {name: torch.tensor(stored(kind, name, shape, case)) for name, shape in shapes.items()}
        shapes = {published(kind, name): shape for name, shape in shapes.items()}
        save_file(values, Path(folder) / "model.safetensors", {"format": "pt"})
        return model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval(), shapes


def stored(kind, name, shape, case):
    """Return a tensor's weights; those of GLM-ASR's queries and keys are turned in halves, not in neighbours."""
    values = weights(published(kind, name), shape)
    if kind != "glmasr" or not name.startswith("audio_tower.") or not any(part in name for part in (".q_", ".k_")):
        return values
    by_head = values.reshape(case["config"]["audio_config"]["num_attention_heads"], -1, *shape[1:])
    n = by_head.shape[1] // 2
    order = [*range(0, n, 2), *range(1, n, 2), *range(n, 2 * n)]
    return by_head[:, order].reshape(shape).copy()


def rows_of(kind, model, given):
    if kind == "audioflamingo3":
        return model.get_audio_features(**given).pooler_output
    if kind == "voxtral":
        return model.get_audio_features(given["input_features"]).pooler_output
    rows = []
    inner = model.model
    hook = inner.multi_modal_projector.register_forward_hook(lambda module, inputs, output: rows.append(output))
    n = (int(given["feature_attention_mask"].sum()) - 1) // 2 + 1
    model(input_ids=torch.tensor([[1, *[SOUND] * (n // 2)]]), **given)
    hook.remove()
    return rows[0][0, : n // 2]


@torch.no_grad()
def make(kind, case):
    samples = sound(SECONDS)
    model, shapes = make_model(kind, case)
    if kind in ("qwen25omni", "qwen3omni", "glmasr"):
        n_mels = case["config"]["audio_config"]["num_mel_bins"]
        features, mask = spectrogram(samples, n_mels, padding="longest" if kind == "qwen3omni" else "max_length")
        name = "input_features_mask" if kind == "glmasr" else "feature_attention_mask"
        given = {"input_features": features, name: mask}
        rows = model.get_audio_features(**given).pooler_output
        return shapes | (GLM_UNUSED if kind == "glmasr" else {}), continued(model, rows, given)
    if kind == "qwen3asr":
        return make_qwen3(model, shapes, spectrogram(samples, 16, padding="longest")[0])
    if kind == "gemma4unified":
        given = Gemma4UnifiedAudioFeatureExtractor()(samples, return_tensors="pt")
        return shapes, continued(model, model.model.get_audio_features(**given).pooler_output[0], given)
    if kind == "gemma4":
        given = Gemma4AudioFeatureExtractor()([samples], return_tensors="pt")
        mel = given["input_features"][0][given["input_features_mask"][0]]
        rows = model.model.get_audio_features(**given)
        values = continued(model, rows.pooler_output[0][rows.attention_mask[0]], given)
        return shapes, values | {"mel": mel.numpy()[::STEP]}
    if kind.startswith("granite"):
        mel = GraniteSpeechFeatureExtractor()(samples)["input_features"]
        rows = model.get_audio_features(mel).pooler_output[0]
        return shapes, continued(model, rows, {"input_features": mel}) | {"mel": mel[0].numpy()[::STEP]}
    features, mask = spectrogram(samples, case["config"]["audio_config"]["num_mel_bins"])
    given = {"input_features": features}
    if kind == "qwen2audio":
        given["feature_attention_mask"] = mask
    if kind == "audioflamingo3":
        given["input_features_mask"] = mask
    return shapes, continued(model, rows_of(kind, model, given), given)


def make_qwen3(model, shapes, features):
    n = features.shape[-1]
    mask = torch.nn.functional.pad(torch.ones(1, n, dtype=torch.long), (0, -n % 100))
    given = {"input_features": torch.nn.functional.pad(features, (0, -n % 100)), "input_features_mask": mask}
    return shapes, continued(model, model.get_audio_features(**given).pooler_output, given)


def continued(model, rows, given):
    """Return rows, and the logits of the tokens after a prompt with them."""
    sounds = [SOUND] * len(rows)
    ids = [*[(7 * i + 3) % 300 for i in range(13)], *sounds, *[(7 * i + 5) % 300 for i in range(16)]]
    values = {"rows": rows.numpy(), "ids": np.array(ids, np.int32)}
    logits = []
    for _ in range(N_GENERATED):
        out = model(input_ids=torch.tensor([ids]), use_cache=False, **given).logits[0, -1]
        logits.append(torch.log_softmax(out.float(), -1).numpy())
        ids = [*ids, int(out.argmax())]
    return values | {"logprobs": np.stack(logits)}


def theirs(sources, kind, shapes):
    """Return metadata and tensors of the projector that llama.cpp's converter writes."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder) / kind, kind, shapes)
        if kind == "qwen3omni":  # whose converter finds the images' encoder under this name alone
            path = Path(folder) / kind / "model.safetensors"
            values = {name.replace("thinker.visual.", "model.visual."): v for name, v in load_file(path).items()}
            save_file(values, path, {"format": "pt"})
        return projector(sources, Path(folder) / kind)


if __name__ == "__main__":
    sources, *names = sys.argv[1:]
    names = names or [kind for kind in CASES if kind not in KEPT]
    values = dict(np.load(FIXTURE)) if FIXTURE.exists() else {}
    for n_mels, lengths in MEL.items():
        for seconds in lengths:
            values[f"mel.{n_mels}.{seconds}"] = spectrogram(sound(seconds), n_mels)[0][0].T.numpy()[:400:STEP]
    for name in names:
        shapes, made = make(name, CASES[name])
        values = {key: value for key, value in values.items() if not key.startswith(f"{name}.")}
        values |= {f"{name}.{key}": value for key, value in made.items()}
        CASES[name] |= {"shapes": shapes, "theirs": theirs(Path(sources), name, shapes)}
    write_cases(FIXTURE.with_name("cases.json"), CASES)
    np.savez_compressed(FIXTURE, **values)
