"""A tiny Qwen3-TTS with random weights, as its authors store one: a folder with the codec's in a folder of its own."""

import json
from pathlib import Path
from typing import Any

import numpy as np

FIXTURE = Path(__file__).parent / "fixtures" / "qwen_speech.npz"
WIDTH, TEXT_WIDTH, N_LAYER, N_FF, HEADS, HEADS_KV, HEAD = 64, 48, 2, 96, 4, 2, 16
CODE_WIDTH, CODE_LAYERS, CODE_FF = 32, 2, 48
N_FIRST, BOOK, N_CODES = 3072, 2048, 16
LATENT, CODEC, CODEC_FF, BOOK_WIDTH, DECODER = 32, 64, 48, 32, 64
CHANNELS, SE, ATTENTION, N_MELS = (32, 32, 32, 32, 96), 16, 16, 128
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")
WORD = "assistant"
MERGES = [(WORD[:i], WORD[i]) for i in range(1, len(WORD))] + [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o")]
N_TEXT = 256 + len(MERGES) + len(SPECIAL)
TEXT = "hello there, a world"
CODES = {
    "codec_pad_id": 2148, "codec_bos_id": 2149, "codec_eos_token_id": 2150, "codec_think_id": 2154,
    "codec_nothink_id": 2155, "codec_think_bos_id": 2156, "codec_think_eos_id": 2157,
}  # fmt: skip
LANGUAGES = {"chinese": 2055, "english": 2050}
SPEAKERS = {"serena": 2066}


def voice() -> np.ndarray:
    """Return samples of a voice by a formula."""
    t = np.arange(20_000) / 24_000
    return (0.3 * np.sin(2 * np.pi * 220 * t) + 0.2 * np.sin(2 * np.pi * (900 + 300 * t) * t + 1)).astype(np.float32)


def byte_letters() -> list[str]:
    """Return the letters that stand for the bytes in byte-level BPE."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(others)) for byte in range(256)]


def tokens() -> list[str]:
    return [*byte_letters(), *(first + second for first, second in MERGES), *SPECIAL]


def tokenizer() -> dict[str, Any]:
    """Return the contents of a ``tokenizer.json`` with Qwen 2's way to split texts."""
    regex = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    first = N_TEXT - len(SPECIAL)
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": {"type": "NFC"},
        "added_tokens": [
            {"id": first + i, "content": token, "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False} for i, token in enumerate(SPECIAL)
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": level,
        "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens()[:first])},
            "merges": [" ".join(pair) for pair in MERGES],
        },
    }  # fmt: skip


def encoded(text: str) -> list[int]:
    """Return the tokens of a text of small letters, as BPE makes them."""
    names = {token: i for i, token in enumerate(tokens())}
    letters = byte_letters()
    merged = {"assistant": [names["assistant"]], "hello": [names["hello"]]}
    found: list[int] = []
    while text:
        word = next((word for word in merged if text.startswith(word)), None)
        special = next((token for token in SPECIAL if text.startswith(token)), None)
        if special:
            found.append(names[special])
        elif word:
            found += merged[word]
        elif text.startswith("he"):
            found.append(names["he"])
        else:
            found += [names[letters[byte]] for byte in text[0].encode()]
        text = text[len(special or word or ("he" if text.startswith("he") else text[0])) :]
    return found


def config() -> dict[str, Any]:
    layers = {
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS_KV, "head_dim": HEAD, "rms_norm_eps": 1e-6,
        "hidden_act": "silu", "attention_bias": False, "max_position_embeddings": 2048, "rope_theta": 1000000.0,
    }  # fmt: skip
    predictor = {
        **layers, "hidden_size": CODE_WIDTH, "intermediate_size": CODE_FF, "num_hidden_layers": CODE_LAYERS,
        "vocab_size": BOOK, "num_code_groups": N_CODES,
    }  # fmt: skip
    talker = {
        **layers, **CODES, "hidden_size": WIDTH, "text_hidden_size": TEXT_WIDTH, "text_vocab_size": N_TEXT,
        "intermediate_size": N_FF, "num_hidden_layers": N_LAYER, "vocab_size": N_FIRST, "num_code_groups": N_CODES,
        "rope_scaling": {"interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default", "type": "default"},
        "codec_language_id": LANGUAGES, "spk_id": SPEAKERS, "spk_is_dialect": {"serena": False},
        "code_predictor_config": predictor,
        "model_type": "qwen3_tts_talker",
    }  # fmt: skip
    encoder = {
        "enc_dim": WIDTH, "mel_dim": N_MELS, "enc_channels": list(CHANNELS), "enc_kernel_sizes": [5, 3, 3, 3, 1],
        "enc_dilations": [1, 2, 3, 4, 1], "enc_res2net_scale": 8, "enc_se_channels": SE,
        "enc_attention_channels": ATTENTION, "sample_rate": 24000,
    }  # fmt: skip
    names = {
        "tts_pad_token_id": "<tts_pad>",
        "tts_bos_token_id": "<tts_text_bos>",
        "tts_eos_token_id": "<tts_text_eod>",
    }
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"], "model_type": "qwen3_tts", "tts_model_type": "base",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz", "talker_config": talker, "speaker_encoder_config": encoder,
        **{key: tokens().index(token) for key, token in names.items()},
    }  # fmt: skip


def codec_config() -> dict[str, Any]:
    """Return the configuration of the codec's decoder."""
    return {
        "codebook_size": BOOK, "codebook_dim": BOOK_WIDTH, "hidden_size": CODEC, "latent_dim": LATENT,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 4, "intermediate_size": CODEC_FF,
        "num_hidden_layers": 8, "num_quantizers": N_CODES, "sliding_window": 72, "rms_norm_eps": 1e-5,
        "decoder_dim": DECODER, "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2], "rope_theta": 10000.0,
        "max_position_embeddings": 8000, "hidden_act": "silu", "attention_bias": False,
    }  # fmt: skip


def model_tensors() -> dict[str, np.ndarray]:
    """Return the tensors of the language model, the predictor of codes and the encoder of voices."""
    shapes: dict[str, tuple[int, ...]] = {
        "talker.model.text_embedding.weight": (N_TEXT, TEXT_WIDTH),
        "talker.model.codec_embedding.weight": (N_FIRST, WIDTH),
        "talker.text_projection.linear_fc1.weight": (TEXT_WIDTH, TEXT_WIDTH),
        "talker.text_projection.linear_fc1.bias": (TEXT_WIDTH,),
        "talker.text_projection.linear_fc2.weight": (WIDTH, TEXT_WIDTH),
        "talker.text_projection.linear_fc2.bias": (WIDTH,),
        "talker.model.norm.weight": (WIDTH,), "talker.codec_head.weight": (N_FIRST, WIDTH),
        "talker.code_predictor.model.norm.weight": (CODE_WIDTH,),
        "talker.code_predictor.small_to_mtp_projection.weight": (CODE_WIDTH, WIDTH),
        "talker.code_predictor.small_to_mtp_projection.bias": (CODE_WIDTH,),
    }  # fmt: skip
    for i in range(N_LAYER):
        shapes |= _layer(f"talker.model.layers.{i}.", WIDTH, N_FF, HEADS * HEAD, HEADS_KV * HEAD, HEAD)
    for i in range(CODE_LAYERS):
        prefix = f"talker.code_predictor.model.layers.{i}."
        shapes |= _layer(prefix, CODE_WIDTH, CODE_FF, HEADS * HEAD, HEADS_KV * HEAD, HEAD)
    for i in range(N_CODES - 1):
        shapes[f"talker.code_predictor.model.codec_embedding.{i}.weight"] = (BOOK, WIDTH)
        shapes[f"talker.code_predictor.lm_head.{i}.weight"] = (BOOK, CODE_WIDTH)
    made = _random({**shapes, **_voice_shapes()}, 3)
    head = made["talker.codec_head.weight"]
    head[CODES["codec_eos_token_id"]] *= np.float32(1.5)  # so that a speech ends
    return made


def codec_tensors() -> dict[str, np.ndarray]:
    """Return the tensors of the codec's decoder."""
    half = BOOK_WIDTH // 2
    shapes: dict[str, tuple[int, ...]] = {
        "pre_conv.conv.weight": (LATENT, BOOK_WIDTH, 3), "pre_conv.conv.bias": (LATENT,),
        "pre_transformer.input_proj.weight": (CODEC, LATENT), "pre_transformer.input_proj.bias": (CODEC,),
        "pre_transformer.output_proj.weight": (LATENT, CODEC), "pre_transformer.output_proj.bias": (LATENT,),
        "pre_transformer.norm.weight": (CODEC,),
    }  # fmt: skip
    for part, n in (("first", 1), ("rest", N_CODES - 1)):
        shapes[f"quantizer.rvq_{part}.input_proj.weight"] = (half, BOOK_WIDTH, 1)
        shapes[f"quantizer.rvq_{part}.output_proj.weight"] = (BOOK_WIDTH, half, 1)
        for i in range(n):
            shapes[f"quantizer.rvq_{part}.vq.layers.{i}._codebook.cluster_usage"] = (BOOK,)
            shapes[f"quantizer.rvq_{part}.vq.layers.{i}._codebook.embedding_sum"] = (BOOK, half)
    for i in range(8):
        shapes |= _layer(f"pre_transformer.layers.{i}.", CODEC, CODEC_FF, 64, 64, 0)
        shapes |= {f"pre_transformer.layers.{i}.{name}_layer_scale.scale": (CODEC,) for name in ("self_attn", "mlp")}
    for i in range(2):
        name = f"upsample.{i}."
        shapes |= {f"{name}0.conv.weight": (LATENT, LATENT, 2), f"{name}0.conv.bias": (LATENT,)}
        shapes |= {f"{name}1.dwconv.conv.weight": (LATENT, 1, 7), f"{name}1.dwconv.conv.bias": (LATENT,)}
        shapes |= {f"{name}1.norm.weight": (LATENT,), f"{name}1.norm.bias": (LATENT,), f"{name}1.gamma": (LATENT,)}
        shapes |= {f"{name}1.pwconv1.weight": (4 * LATENT, LATENT), f"{name}1.pwconv1.bias": (4 * LATENT,)}
        shapes |= {f"{name}1.pwconv2.weight": (LATENT, 4 * LATENT), f"{name}1.pwconv2.bias": (LATENT,)}
    made = _random({**shapes, **_stages()}, 5)
    for name in made:  # so that samples are not cut
        if name.endswith("conv2.conv.weight"):
            made[name] *= np.float32(0.125)
    made["decoder.6.conv.weight"] *= np.float32(2**-6)
    return {f"decoder.{name}": values for name, values in made.items()}


def write_qwen(folder: Path) -> Path:
    """Write a checkpoint's folder."""
    from checkpoints import write_safetensors

    (folder / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    exact = {"": ("F32", None)}
    write_safetensors(folder / "model.safetensors", model_tensors(), exact)
    write_safetensors(folder / "speech_tokenizer" / "model.safetensors", codec_tensors(), exact)
    (folder / "config.json").write_text(json.dumps(config()))
    (folder / "speech_tokenizer" / "config.json").write_text(json.dumps({"decoder_config": codec_config()}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return folder


def write_converted(folder: Path) -> Path:
    """Write the language model and its speech model beside it, as ``pumice convert`` makes them of a checkpoint."""
    from click.testing import CliRunner

    from pumice.cli import cli

    checkpoint = write_qwen(folder / "checkpoint")
    for file, more in (("model.gguf", []), ("mmproj.gguf", ["--mmproj"])):
        arguments = ["convert", str(checkpoint), "-o", str(folder / file), "--type", "f32", *more]
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert not result.exit_code, result.output
    return folder / "model.gguf"


def _random(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Return random tensors that float16 holds exactly, as kernels of convolutions are stored."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        if name.endswith(("norm.weight", "layernorm.weight")):
            values = 1 + 0.1 * values
        elif name.endswith(("scale", "gamma")):
            values = 0.3 + 0.05 * values
        elif name.endswith("usage"):
            values = np.exp2(np.rint(values))
        elif name.endswith(("bias", "alpha", "beta")):
            values = 0.1 * values
        elif not name.endswith(("_sum", "embedding.weight")) and "codec_embedding" not in name:
            fan = shape[0] if _is_transposed(name) else np.prod(shape[1:])
            values *= np.float32(fan) ** np.float32(-0.5)
        made[name] = values.astype(np.float16).astype(np.float32)
    return made


def _is_transposed(name: str) -> bool:
    return ".block.1.conv." in name or (name.startswith("upsample.") and ".0.conv." in name)


def _layer(prefix: str, n: int, n_ff: int, n_q: int, n_kv: int, head: int) -> dict[str, tuple[int, ...]]:
    norms = {f"self_attn.{name}_norm.weight": (head,) for name in "qk"} if head else {}
    parts = {
        "input_layernorm.weight": (n,), "post_attention_layernorm.weight": (n,), "self_attn.q_proj.weight": (n_q, n),
        "self_attn.k_proj.weight": (n_kv, n), "self_attn.v_proj.weight": (n_kv, n), "self_attn.o_proj.weight": (n, n_q),
        "mlp.gate_proj.weight": (n_ff, n), "mlp.up_proj.weight": (n_ff, n), "mlp.down_proj.weight": (n, n_ff), **norms,
    }  # fmt: skip
    return {f"{prefix}{name}": shape for name, shape in parts.items()}


def _voice_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}

    def conv(name: str, n_out: int, n_in: int, n_taps: int = 1) -> None:
        shapes.update(
            {f"speaker_encoder.{name}.weight": (n_out, n_in, n_taps), f"speaker_encoder.{name}.bias": (n_out,)}
        )

    n, last = CHANNELS[0], CHANNELS[-1]
    conv("blocks.0.conv", n, N_MELS, 5)
    for i in range(1, 4):
        conv(f"blocks.{i}.tdnn1.conv", n, n)
        for j in range(7):
            conv(f"blocks.{i}.res2net_block.blocks.{j}.conv", n // 8, n // 8, 3)
        conv(f"blocks.{i}.tdnn2.conv", n, n)
        conv(f"blocks.{i}.se_block.conv1", SE, n)
        conv(f"blocks.{i}.se_block.conv2", n, SE)
    conv("mfa.conv", last, 3 * n)
    conv("asp.tdnn.conv", ATTENTION, 3 * last)
    conv("asp.conv", last, ATTENTION)
    conv("fc", WIDTH, 2 * last)
    return shapes


def _stages() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "decoder.0.conv.weight": (DECODER, LATENT, 7),
        "decoder.0.conv.bias": (DECODER,),
    }
    n = DECODER
    for i, ratio in enumerate((8, 5, 4, 3)):
        name = f"decoder.{i + 1}.block."
        shapes |= {f"{name}0.{part}": (n,) for part in ("alpha", "beta")}
        shapes |= {f"{name}1.conv.weight": (n, n // 2, 2 * ratio), f"{name}1.conv.bias": (n // 2,)}
        n //= 2
        for j in (2, 3, 4):
            shapes |= {f"{name}{j}.act{k}.{part}": (n,) for k in (1, 2) for part in ("alpha", "beta")}
            shapes |= {f"{name}{j}.conv1.conv.weight": (n, n, 7), f"{name}{j}.conv1.conv.bias": (n,)}
            shapes |= {f"{name}{j}.conv2.conv.weight": (n, n, 1), f"{name}{j}.conv2.conv.bias": (n,)}
    shapes |= {f"decoder.5.{part}": (n,) for part in ("alpha", "beta")}
    return shapes | {"decoder.6.conv.weight": (1, n, 7), "decoder.6.conv.bias": (1,)}
