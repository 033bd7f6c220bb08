"""Tiny models that hear, beside transformers: their conversion, spectrograms, rows, and the text after a sound."""

import json

import numpy as np
import pytest

import pumice
from hearing_models import CASES, FIXTURE, ODD_SECONDS, RATE, SECONDS, SHORT_SECONDS, SOUND, sound, write_folder
from pumice.convert import ConvertOptions, write_model
from pumice.embeddings import Embeddings
from pumice.gguf import GGMLType
from pumice.media_encoder import SoundPiece
from pumice.model_files.opening import open_model
from pumice_architectures.hearing.conformer import usm_mel
from pumice_architectures.hearing.fast_conformer import normalized_mel
from pumice_architectures.hearing.gemma3n import emphasized_mel
from pumice_architectures.hearing.granite import paired_mel
from pumice_architectures.hearing.mel import HOP, WINDOW_FRAMES, log_mel
from reference_models import check_text
from vision_files import opened, parts_of
from vision_models import described
from vision_models import write_folder as write_images

VALUES = np.load(FIXTURE)
STEP, WINDOW = 7, HOP * WINDOW_FRAMES
WITHOUT_TEXTS = ("mimo", "ultravox")  # whose language model is another checkpoint, or not compared
DEEP = {"qwen3omni": 2}
# Keys that llama.cpp has in its program.
OWN = {"attention.head_dim", "image_max_pixels", "image_min_pixels"}
OWN |= {"preproc_max_tiles", "tokens_per_second", "window_size"}
TEXTS = {  # others have none
    **dict.fromkeys(("qwen2audio", "qwen25omni"), ("<|audio_bos|>", "<|audio_eos|>")),
    **dict.fromkeys(("qwen3asr", "qwen3omni"), ("<|audio_start|>", "<|audio_end|>")),
    **dict.fromkeys(("gemma4", "gemma4unified"), ("<|audio>", "<audio|>")),
    "voxtral": ("[BEGIN_AUDIO]",),
    "glmasr": ("<|begin_of_audio|>", "<|end_of_audio|>"),
    "mimo": ("<|mimo_audio_start|>", "<|mimo_audio_end|>"),
    "gemma3n": ("\n\n<start_of_audio>", "\n\n"),
    "dots3note": ("<|audio_comp_start|>", "<|audio_comp_end|>"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")

    def make(kind):
        folder = root / kind
        if not folder.exists():
            write_folder(folder, kind)
            for name, mmproj in (("model", False), ("mmproj", True))[kind in WITHOUT_TEXTS :]:
                with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=mmproj)) as file:
                    write_model(file, folder / f"{name}.gguf")
        return folder

    return make


@pytest.mark.parametrize("kind", CASES)
def test_projectors_are_those_of_llama_cpps_converter(folders, kind):
    ours, theirs = described(folders(kind) / "mmproj.gguf"), CASES[kind]["theirs"]
    for key in {f"clip.vision.{key}" for key in OWN} - theirs["metadata"].keys():
        ours["metadata"].pop(key, None)
    if kind in ("qwen25omni", "qwen3asr", "qwen3omni"):  # sines of torch differ in the last bit
        ours["tensors"].pop("a.position_embd.weight")
        theirs = {**theirs, "tensors": dict(theirs["tensors"])}
        assert theirs["tensors"].pop("a.position_embd.weight")[:2] == ["F32", [1500, 16]]
    if kind.startswith(("granite", "lfm2")):  # llama.cpp reads conv_norm, but Granite's converter writes conv_norm_var
        tensors = {name.replace("conv_norm_var.", "conv_norm."): value for name, value in theirs["tensors"].items()}
        theirs = {**theirs, "tensors": tensors}
        for name in [name for name in tensors if ".conv_norm." in name]:  # torch's root differs in the last bit
            assert ours["tensors"].pop(name)[:2] == tensors.pop(name)[:2]
    if kind == "gemma3n":  # llama.cpp's converter does not know these
        for i in range(2):
            assert ours["tensors"].pop(f"a.conv1d.{i}.norm.weight")[0] == "F32"
    if kind == "parakeet":  # torch's interpolation differs in the last bit
        assert ours["tensors"].pop("v.position_embd.weight")[:2] == ["F32", [1, 64, 32]]
        theirs["tensors"].pop("v.position_embd.weight")
    if kind == "gemma4":  # torch's softplus differs in the last bit
        for name in [name for name in theirs["tensors"] if name.endswith("per_dim_scale.weight")]:
            assert ours["tensors"].pop(name)[:2] == theirs["tensors"].pop(name)[:2] == ["F32", [16]]
    assert ours == theirs


@pytest.mark.parametrize(
    ("write", "kind", "values", "problem"),
    [
        (write_folder, "qwen2audio", {"audio_config": {"hidden_act": "relu"}}, "'hidden_act' in 'audio_config'"),
        (write_images, "qwen3vl", {"vision_config": {"hidden_act": "relu"}}, "'hidden_act' in 'vision_config'"),
        (write_images, "qwen2vl", {"vision_config": {"hidden_act": "gelu"}}, "'hidden_act' in 'vision_config'"),
        (write_images, "pixtral", {"vision_config": {"rope_parameters": {"rope_theta": 100.0}}}, "'rope_theta' in"),
        (write_images, "internvl", {"projector_hidden_act": "relu"}, "'projector_hidden_act'"),
        (write_images, "museglimmer", {"vision_config": {"hidden_act": "relu"}}, "'hidden_act' in 'vision_config'"),
        (write_images, "museglimmer", {"vision_config": {"layer_norm_eps": 0.3}}, "'layer_norm_eps' in"),
    ],
)
def test_what_an_encoders_graph_does_not_have_is_refused(tmp_path, write, kind, values, problem):
    write(tmp_path, kind)
    config = json.loads((tmp_path / "config.json").read_text())
    values = {key: config[key] | value if isinstance(value, dict) else value for key, value in values.items()}
    (tmp_path / "config.json").write_text(json.dumps(config | values))
    with pytest.raises(pumice.ConvertError, match=f"unsupported {problem}"):
        open_model(tmp_path, options=ConvertOptions(GGMLType.F32, mmproj=True))


@pytest.mark.parametrize(("n_mels", "seconds"), [(80, 0.3), (80, 2.4), (128, 1.0)])
def test_spectrograms_are_those_of_transformers(n_mels, seconds):
    samples = sound(seconds)
    ours = log_mel(np.pad(samples, (0, WINDOW - len(samples))), n_mels)[:400:STEP]
    np.testing.assert_allclose(ours, VALUES[f"mel.{n_mels}.{seconds}"], rtol=0, atol=2e-7)


@pytest.mark.parametrize(
    ("kind", "mel", "n_mels", "atol"),
    [
        ("gemma4", usm_mel, 128, 2e-6),
        ("gemma3n", emphasized_mel, 32, 2e-6),
        ("granitespeech", paired_mel, 80, 5e-5),  # float32, and so the next
        ("lfm2audio", normalized_mel, 128, 1e-4),
    ],
)
def test_other_spectrograms_are_those_of_transformers(kind, mel, n_mels, atol):
    np.testing.assert_allclose(mel(sound(SECONDS), n_mels)[::STEP], VALUES[f"{kind}.mel"], rtol=0, atol=atol)


@pytest.mark.parametrize(("kind", "backend"), [*((kind, "numpy") for kind in CASES), ("qwen2audio", "cpu")])
def test_rows_are_those_of_transformers(folders, kind, backend):
    parts = parts_of(folders(kind), sound(SECONDS, CASES[kind].get("rate", RATE)), backend, "audio")
    assert [part for part in parts if isinstance(part, str)] == list(TEXTS.get(kind, ()))
    reference = VALUES[f"{kind}.rows"]
    rows = np.concatenate([part.rows for part in parts if isinstance(part, Embeddings)])
    assert not rows[:, reference.shape[1] :].any()  # images have further values
    rows = rows[:, : reference.shape[1]]
    limit = {"numpy": 1e-6, "cpu": 1e-4}[backend]
    assert rows.shape == reference.shape
    assert np.abs(rows - reference).max() <= limit * np.abs(reference).max()


@pytest.mark.parametrize(("kind", "seconds", "n_rows"), [("dots3note", SHORT_SECONDS, 3), ("mimo", ODD_SECONDS, 1)])
def test_last_rows_of_incomplete_frames_or_pairs_are_those_of_the_reference(folders, kind, seconds, n_rows):
    parts = parts_of(folders(kind), sound(seconds, CASES[kind].get("rate", RATE)), kind="audio")
    (part,) = [part for part in parts if isinstance(part, Embeddings)]
    reference = VALUES[f"{kind}.short"]
    assert len(part.rows) == n_rows
    assert np.abs(part.rows - reference).max() <= 1e-6 * np.abs(reference).max()


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind not in WITHOUT_TEXTS])
def test_texts_after_a_sound_are_those_of_transformers(folders, kind):
    logprobs, ids = VALUES[f"{kind}.logprobs"], VALUES[f"{kind}.ids"].tolist()
    rows = VALUES[f"{kind}.rows"]
    more = DEEP.get(kind, 0) * rows.shape[1]  # further values of images
    span = Embeddings(np.pad(rows, ((0, 0), (0, more))), kind="audio", start=ids.index(SOUND))
    with pumice.load(folders(kind) / "model.gguf", backend="numpy", kv_type="f32", n_ctx=512) as model:
        check_text(model, ids, [span], logprobs, 2e-4)


def test_long_sounds_have_a_window_for_each_30_seconds(folders, monkeypatch):
    for kind, counts in {
        "voxtral": {1: [375], WINDOW: [375], WINDOW + 1: [375, 375]},
        "qwen2audio": {1: [1], RATE: [25], WINDOW: [750], WINDOW + RATE: [750, 25]},
        "qwen3asr": {1: [7], RATE: [13], 9 * RATE + 800: [104, 14]},
        "ultravox": {1: [1], RATE: [7], WINDOW: [188], WINDOW + RATE: [188, 7]},
        "audioflamingo3": {1: [1], RATE: [25], WINDOW: [750], WINDOW + RATE: [750, 25]},
        "glmasr": {1: [1], RATE: [12], WINDOW: [375], WINDOW + RATE: [375, 12]},
        "meralion": {1: [100], WINDOW: [100], WINDOW + 1: [100, 100]},
        "qwen25omni": {1: [1], RATE: [25], 2 * RATE: [50], 5 * RATE: [50, 50, 25]},
        "qwen3omni": {1: [7], RATE: [13], 9 * RATE + 800: [104, 14]},
        "dots3note": {1: [1], 1281: [2], WINDOW: [375], 2 * WINDOW + 1: [750, 1]},
        "mimo": {1: [1], 24_000: [7], 6000 * 240 - 240: [375], 6000 * 240: [375, 1]},
        "gemma3n": {1: [189], WINDOW: [189], WINDOW + 1: [189, 189]},
        "gemma4": {1: [1], RATE: [25], WINDOW: [750], WINDOW + RATE: [750, 25]},
        "gemma4unified": {1: [1], 641: [2], WINDOW: [750], WINDOW + RATE: [750, 25]},
    }.items():
        projector = opened(folders(kind))
        for n_samples, expected in counts.items():
            pieces = projector.encoders["audio"].prepare(np.zeros(n_samples, np.float32))
            assert projector.encoders["audio"].count_rows(n_samples) == sum(expected), (kind, n_samples)
            assert [part.n_rows for part in pieces if isinstance(part, SoundPiece)] == expected, (kind, n_samples)
        monkeypatch.setattr(projector.encoders["audio"], "prepare", lambda _: pytest.fail("it does not fit"))
        with pytest.raises(pumice.PromptTooLongError):
            projector.encode(np.zeros(WINDOW, np.float32), 99, "audio")
        if "image" not in projector.encoders:
            with pytest.raises(pumice.RequestError, match=r"takes no images: mmproj.gguf has no encoder"):
                projector.encode(np.zeros((8, 8, 3), np.uint8))
        projector.close()
