"""Make tests/fixtures/hearing_models: tiny models that hear, by transformers: spectrograms, rows, and texts.

    python tests/make_fixtures/hearing_models.py path/to/llama.cpp [case...]     (needs torch and transformers)

A case is a configuration in cases.json; its weights follow from the names of tensors (tests/checkpoints.py). Stored
are shapes, spectrograms of sounds, rows of one, and the logits of the tokens after a prompt with it; also metadata and
digests of tensors of the projector that llama.cpp's converter writes. Transformers has no Ultravox: its rows are those
of transformers' Whisper encoder and of the projector below, which follows the description of its authors. MiMo's rows
are kept as they are: formulas gave them, which are in ``git show f5c87526:tests/make_fixtures/hearing_models.py``, and
llama.cpp's libmtmd computes them too (``libmtmd_sounds.py``).
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn.functional import pad, silu
from transformers import WhisperConfig, WhisperFeatureExtractor
from transformers.models.dots3_note.feature_extraction_dots3_note import Dots3NoteFeatureExtractor
from transformers.models.gemma3n import modeling_gemma3n as gemma3n
from transformers.models.gemma3n.feature_extraction_gemma3n import Gemma3nAudioFeatureExtractor
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4_unified.feature_extraction_gemma4_unified import Gemma4UnifiedAudioFeatureExtractor
from transformers.models.granite_speech.feature_extraction_granite_speech import GraniteSpeechFeatureExtractor
from transformers.models.parakeet.configuration_parakeet import ParakeetEncoderConfig
from transformers.models.parakeet.feature_extraction_parakeet import ParakeetFeatureExtractor
from transformers.models.parakeet.modeling_parakeet import ParakeetEncoder
from transformers.models.whisper.modeling_whisper import WhisperEncoder

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from llama_converter import projector

from checkpoints import weights, write_cases
from hearing_models import (
    CASES,
    FIXTURE,
    RATE,
    SECONDS,
    SHORT_SECONDS,
    SOUND,
    published,
    sound,
    write_folder,
)
from vision_formulas import CASES as SEEING

N_GENERATED = 4
N_DOTS_MELS = CASES["dots3note"]["config"]["audio_config"]["whisper_config"]["num_mel_bins"]
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


def saved(kind, state):
    """Return the weights of the names and shapes of a model's tensors, and these shapes."""
    shapes = {name: list(tensor.shape) for name, tensor in state.items()}
    return {name: torch.tensor(weights(name, shape)) for name, shape in shapes.items()}, shapes


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
    if kind in ("ultravox", "meralion"):
        return (make_ultravox if kind == "ultravox" else make_meralion)(case, samples)
    if kind == "gemma3n":
        return make_gemma3n(kind, case, samples)
    if kind in ("lfm2audio", "parakeet"):
        return (make_lfm2audio if kind == "lfm2audio" else make_parakeet)(case, samples)
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
    if kind == "dots3note":
        return shapes, make_dots(model, samples)
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


def make_gemma3n(kind, case, samples):
    """Return transformers' rows, with those of padding and of the end of the sound, and the logits after them."""
    make_tower = gemma3n.AutoModel.from_config
    gemma3n.AutoModel.from_config = lambda config: (
        torch.nn.Identity() if config.model_type == "gemma3n_vision" else make_tower(config)
    )
    model, shapes = make_model(kind, case)
    shapes |= {name: list(shape) for name, shape in SEEING["gemma3n"]["shapes"].items()}
    n_mels, end = case["config"]["audio_config"]["input_feat_size"], case["config"]["eoa_token_id"]
    given = Gemma3nAudioFeatureExtractor(feature_size=n_mels)(samples, return_tensors="pt")
    ids = torch.tensor([[*[SOUND] * 188, end]])
    embedded = []
    hook = model.model.language_model.register_forward_pre_hook(
        lambda module, args, given: embedded.append(given["inputs_embeds"][0]), with_kwargs=True
    )
    model(input_ids=ids, **given)
    hook.remove()
    mel = given["input_features"][0].numpy()[::STEP]
    values = continued(model, embedded[0], given, end)
    # Transformers embeds the third generated token, since its id is among those of sounds, by another table.
    return shapes, values | {"logprobs": values["logprobs"][:3], "mel": mel}


def make_dots(model, samples):
    """Return rows, those of a sound whose last row has no frame, and the logits after the first ones."""

    def given(samples):
        own = Dots3NoteFeatureExtractor(feature_size=N_DOTS_MELS)(samples)
        padded = np.pad(samples, (0, 60 * RATE - len(samples)))[None]
        mel = WhisperFeatureExtractor(feature_size=N_DOTS_MELS)._np_extract_fbank_features(padded, "cpu")
        mel = torch.tensor(mel[..., : own["input_features"].shape[-1]])
        assert torch.allclose(mel, own["input_features"], rtol=0, atol=1e-3)  # which computes in float32
        return {"input_features": mel, "chunk_sample_lengths": own["chunk_sample_lengths"]}

    short, long = given(sound(SHORT_SECONDS)), given(samples)
    values = continued(model, model.model.get_audio_features(**long).pooler_output, long)
    return values | {"short": model.model.get_audio_features(**short).pooler_output.numpy()}


def make_qwen3(model, shapes, features):
    n = features.shape[-1]
    mask = torch.nn.functional.pad(torch.ones(1, n, dtype=torch.long), (0, -n % 100))
    given = {"input_features": torch.nn.functional.pad(features, (0, -n % 100)), "input_features_mask": mask}
    return shapes, continued(model, model.get_audio_features(**given).pooler_output, given)


def continued(model, rows, given, end=SOUND):
    """Return rows, and the logits of the tokens after a prompt with them, the last one of which is of token ``end``."""

    def logits_of(ids):
        return model(input_ids=torch.tensor([ids]), use_cache=False, **given).logits[0, -1]

    return generated(logits_of, rows, end)


def generated(logits_of, rows, end):
    sounds = [*[SOUND] * (len(rows) - 1), end]
    ids = [*[(7 * i + 3) % 300 for i in range(13)], *sounds, *[(7 * i + 5) % 300 for i in range(16)]]
    values = {"rows": rows.numpy(), "ids": np.array(ids, np.int32)}
    logits = []
    for _ in range(N_GENERATED):
        out = logits_of(ids)
        logits.append(torch.log_softmax(out.float(), -1).numpy())
        ids = [*ids, int(out.argmax())]
    return values | {"logprobs": np.stack(logits)}


def spoken_of(prefix, config, rows, scale=1.0):
    """Return shapes of a language model of transformers, and the logits of the tokens after a prompt with rows.

    Args:
        prefix: what stands in the checkpoint for ``model.``, and before other names.
        config: the language model's configuration.
        rows: embeddings of a sound.
        scale: factor by which the model's authors multiply all embeddings, which transformers does with tokens' alone.
    """
    config = getattr(transformers, CONFIGS[config["model_type"]])(**config)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    names = {name: lfm2_text(name) if prefix == "lfm." else f"{prefix}{name}" for name in model.state_dict()}
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    shapes = {names[name]: list(t.shape) for name, t in model.state_dict().items() if name not in tied}
    values = {name: torch.tensor(weights(names[name], shapes[names[name]])) for name in names if name not in tied}
    model.load_state_dict(values, strict=False)
    embed = model.get_input_embeddings()

    def logits_of(ids):
        x = embed(torch.tensor([ids]))
        x[0, 13 : 13 + len(rows)] = rows * scale
        return model(inputs_embeds=x, use_cache=False).logits[0, -1]

    return shapes, generated(logits_of, rows, SOUND)


CONFIGS = {"gemma2": "Gemma2Config", "lfm2": "Lfm2Config", "nemotron_h": "NemotronHConfig"}


def lfm2_text(name):
    return f"lfm.{name.removeprefix('model.')}"


def make_meralion(case, samples):
    """Return transformers' Whisper encoder and the projector of the authors' description."""
    config = case["config"]["speech_config"]
    encoder = WhisperEncoder(WhisperConfig(**config, attn_implementation="eager")).eval()
    width, stack, n = config["d_model"], case["config"]["speech_mlp_scale_factor"], 5 * config["d_model"]
    shapes = {f"speech_encoder.{name}": list(tensor.shape) for name, tensor in encoder.state_dict().items()}
    shapes |= {"ln_speech.weight": [width], "ln_speech.bias": [width]}
    linears = {
        "mlp_adapter.0": (n, stack * width),
        "gate_proj": (n, n),
        "pool_proj": (n, n),
        "out_proj": (case["config"]["text_config"]["hidden_size"], n),
    }
    for name, (n_out, n_in) in linears.items():
        shapes |= {f"speech_audio_adapter.{name}.weight": [n_out, n_in], f"speech_audio_adapter.{name}.bias": [n_out]}
    values = {name: torch.tensor(weights(name, shape)) for name, shape in shapes.items()}
    encoder.load_state_dict(
        {name.removeprefix("speech_encoder."): v for name, v in values.items() if "encoder" in name}
    )
    x = encoder(spectrogram(samples, config["num_mel_bins"])[0]).last_hidden_state[0]
    x = torch.nn.functional.layer_norm(x, [width], values["ln_speech.weight"], values["ln_speech.bias"])

    def linear(name, x):
        weight, bias = (values[f"speech_audio_adapter.{name}.{part}"] for part in ("weight", "bias"))
        return x @ weight.T + bias

    x = silu(linear("mlp_adapter.0", x.reshape(-1, stack * width)))
    rows = linear("out_proj", silu(linear("gate_proj", x)) * linear("pool_proj", x))
    text = case["config"]["text_config"]
    of_text, made = spoken_of("text_decoder.", text, rows, text["hidden_size"] ** 0.5)
    return shapes | of_text, made


def make_parakeet(case, samples):
    """Return rows of transformers' Parakeet, and of the projector of llama.cpp's description."""
    config, width = case["config"]["sound_config"], case["config"]["hidden_size"]
    encoder = ParakeetEncoder(ParakeetEncoderConfig(
        **{key: value for key, value in config.items() if key != "model_type"}, attention_bias=False,
        convolution_bias=False, scale_input=False, attn_implementation="eager",
    )).eval()  # fmt: skip
    shapes = {f"sound_encoder.encoder.{name}": list(tensor.shape) for name, tensor in encoder.state_dict().items()}
    n = config["hidden_size"]
    shapes |= {"sound_projection.norm.weight": [n], "sound_projection.linear1.weight": [40, n]}
    shapes |= {"sound_projection.linear2.weight": [width, 40]}
    shapes |= {name: list(shape) for name, shape in SEEING["nemotron_v2_vl"]["shapes"].items()}
    values = {name: torch.tensor(weights(name, shape)) for name, shape in shapes.items()}
    encoder.load_state_dict({name: values[f"sound_encoder.encoder.{name}"] for name in encoder.state_dict()})
    x = parakeet_rows(encoder, config["num_mel_bins"], samples)[0]
    x = normed(x, values["sound_projection.norm.weight"]) @ values["sound_projection.linear1.weight"].T
    x = torch.nn.functional.relu(x).square() @ values["sound_projection.linear2.weight"].T
    of_text, made = spoken_of("language_model.", case["config"]["llm_config"], x)
    return shapes | of_text, made


def parakeet_rows(encoder, n_mels, samples):
    """Return an encoder's rows of a sound, and its spectrogram."""
    given = ParakeetFeatureExtractor(feature_size=n_mels)(samples, sampling_rate=RATE, return_tensors="pt")
    made = encoder(given["input_features"], attention_mask=given["attention_mask"])
    rows = made.last_hidden_state[0][: -(-int(given["attention_mask"].sum()) // 8)]
    return rows, given["input_features"][0][given["attention_mask"][0].bool()]


LFM2_NAMES = {
    "encoder.subsampling.linear.": "conformer.pre_encode.out.",
    "encoder.subsampling.layers.": "conformer.pre_encode.conv.",
    "encoder.": "conformer.", "self_attn.q_proj": "self_attn.linear_q", "self_attn.k_proj": "self_attn.linear_k",
    "self_attn.v_proj": "self_attn.linear_v", "self_attn.o_proj": "self_attn.linear_out",
    "self_attn.relative_k_proj": "self_attn.linear_pos", "self_attn.bias_": "self_attn.pos_bias_",
    "conv.norm.": "conv.batch_norm.",
}  # fmt: skip
"""Parts of names of transformers' Parakeet, and what stands for them in LFM2-Audio's checkpoint."""


def make_lfm2audio(case, samples):
    """Return rows of transformers' Parakeet, as which the authors build their encoder, and of the adapter behind it."""
    config, width = case["config"]["encoder"], case["config"]["lfm"]["hidden_size"]
    n = config["d_model"]
    encoder = ParakeetEncoder(ParakeetEncoderConfig(
        hidden_size=n, num_hidden_layers=config["n_layers"], num_attention_heads=config["n_heads"],
        intermediate_size=4 * n, num_mel_bins=config["feat_in"], conv_kernel_size=9, subsampling_conv_channels=6,
        attention_bias=True, convolution_bias=True, scale_input=False, attn_implementation="eager",
    )).eval()  # fmt: skip
    shapes = {}
    for name, tensor in encoder.state_dict().items():
        shapes[lfm2_name(f"encoder.{name}")] = list(tensor.shape)
    shapes |= {"audio_adapter.model.0.weight": [n], "audio_adapter.model.0.bias": [n]}
    for number, (n_out, n_in) in {1: (48, n), 3: (width, 48)}.items():
        shapes |= {f"audio_adapter.model.{number}.weight": [n_out, n_in], f"audio_adapter.model.{number}.bias": [n_out]}
    shapes |= {"audio_embedding.embedding.weight": [40, width], "audio_embedding.embedding_norm.weight": [width]}
    shapes |= {"audio_embedding.to_logits.weight": [40, width]}
    values = {name: torch.tensor(weights(name, shape)) for name, shape in shapes.items()}
    encoder.load_state_dict({name: values[lfm2_name(f"encoder.{name}")] for name in encoder.state_dict()})
    x, mel = parakeet_rows(encoder, config["feat_in"], samples)
    adapter = {name.removeprefix("audio_adapter.model."): value for name, value in values.items() if "adapter" in name}
    x = torch.nn.functional.layer_norm(x, [n], adapter["0.weight"], adapter["0.bias"])
    x = torch.nn.functional.gelu(x @ adapter["1.weight"].T + adapter["1.bias"])
    of_text, made = spoken_of("lfm.", case["config"]["lfm"], x @ adapter["3.weight"].T + adapter["3.bias"])
    return shapes | of_text, made | {"mel": mel.numpy()[::STEP]}


def lfm2_name(name):
    for part, theirs_ in LFM2_NAMES.items():
        name = name.replace(part, theirs_)
    return name


def make_ultravox(case, samples):
    config = case["config"]
    encoder = WhisperEncoder(WhisperConfig(**config["audio_config"], attn_implementation="eager")).eval()
    width, hidden, stack = config["audio_config"]["d_model"], config["hidden_size"], config["stack_factor"]
    shapes = {f"audio_tower.{name}": list(tensor.shape) for name, tensor in encoder.state_dict().items()}
    shapes |= {
        "multi_modal_projector.ln_pre.weight": [width * stack],
        "multi_modal_projector.linear_1.weight": [hidden, width * stack],
        "multi_modal_projector.ln_mid.weight": [hidden // 2],
        "multi_modal_projector.linear_2.weight": [config["text_config"]["hidden_size"], hidden // 2],
    }
    values = {name: torch.tensor(weights(name, shape)) for name, shape in shapes.items()}
    encoder.load_state_dict({name.removeprefix("audio_tower."): v for name, v in values.items() if "tower" in name})
    features, _ = spectrogram(
        samples, config["audio_config"]["num_mel_bins"], padding="longest", pad_to_multiple_of=160
    )
    x = torch.nn.functional.gelu(encoder.conv1(features))
    x = torch.nn.functional.gelu(encoder.conv2(x)).permute(0, 2, 1)
    x = x + encoder.embed_positions.weight[: x.shape[1]]
    for layer in encoder.layers:
        out = layer(x, None)
        x = out[0] if isinstance(out, tuple) else out
    x = encoder.layer_norm(x)[0]
    x = pad(x, (0, 0, 0, -len(x) % stack)).reshape(-1, width * stack)
    x = normed(x, values["multi_modal_projector.ln_pre.weight"]) @ values["multi_modal_projector.linear_1.weight"].T
    x, gate = x.chunk(2, -1)
    x = normed(silu(gate) * x, values["multi_modal_projector.ln_mid.weight"])
    return shapes, {"rows": (x @ values["multi_modal_projector.linear_2.weight"].T).numpy()}


def normed(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


LEFT_OUT = ("conv_0.norm.weight", "conv_1.norm.weight")
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SIZED = """
import runpy, sys
sys.path.insert(0, {0!r})
from conversion.nemotron import NemotronNanoV2VLModel as Model
Model.has_audio_encoder = True  # so that names of more layers than two are known
Model._vit_hidden_size, Model._vit_intermediate_size, Model._vit_num_layers, Model._vit_num_heads = {1}, {2}, {3}, {4}
runpy.run_path({0!r} + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def theirs(sources, kind, shapes):
    """Return metadata and tensors of the projector that llama.cpp's converter writes."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder) / kind, kind, shapes)
        if kind == "gemma3n":  # of which the converter knows no norms of convolutions, and fails
            path = Path(folder) / kind / "model.safetensors"
            values = {name: v for name, v in load_file(path).items() if not name.endswith(LEFT_OUT)}
            save_file(values, path, {"format": "pt"})
        if kind == "qwen3omni":  # whose converter finds the images' encoder under this name alone
            path = Path(folder) / kind / "model.safetensors"
            values = {name.replace("thinker.visual.", "model.visual."): v for name, v in load_file(path).items()}
            save_file(values, path, {"format": "pt"})
        script = []
        if kind == "parakeet":  # whose encoder of images has its published size in the converter
            vision = CASES[kind]["config"]["vision_config"]
            script = ["-c", SIZED.format(str(sources), *(vision[key] for key in SIZES))]
        return projector(sources, Path(folder) / kind, script)


if __name__ == "__main__":
    sources, *names = sys.argv[1:]
    names = names or [kind for kind in CASES if kind != "mimo"]
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
