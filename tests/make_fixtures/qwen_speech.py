"""Make qwen_speech.npz: what the package qwen-tts makes of the tiny model of tests/qwen_speech_models.py."""

# The argument is the folder of llama.cpp's sources, whose converter writes the speech model.

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from llama_converter import projector
from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2DecoderConfig
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Decoder
from tokenizers import Tokenizer

import qwen_speech_models as tiny

MOST = 20  # frames


def loaded(module: torch.nn.Module, tensors: dict[str, np.ndarray]) -> torch.nn.Module:
    module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in tensors.items()}, strict=True)
    return module.eval()


def spoken(codec: torch.nn.Module, found: dict[str, np.ndarray]) -> None:
    settings = Qwen3TTSConfig(**tiny.STORED["config"])
    for part in (settings, settings.talker_config, settings.talker_config.code_predictor_config):
        part._attn_implementation = "eager"
    model = loaded(Qwen3TTSForConditionalGeneration(settings), tiny.model_tensors())
    text = f"<|im_start|>assistant\n{tiny.TEXT}<|im_end|>\n<|im_start|>assistant\n"
    tokenizer = Tokenizer.from_str(json.dumps(tiny.STORED["tokenizer"]))
    ids = torch.tensor([tokenizer.encode(text).ids])
    row = model.extract_speaker_embedding(tiny.voice(), 24000)
    found["voice row"] = row.numpy()
    clone = {"ref_spk_embedding": [row], "x_vector_only_mode": [True], "icl_mode": [False], "ref_code": None}
    kinds = {"plain": (None, "auto", None), "voice": (clone, "english", None), "named": (None, "english", "serena")}
    for kind, (voice, language, speaker) in kinds.items():
        codes, _ = model.generate(
            input_ids=[ids], voice_clone_prompt=voice, languages=[language], speakers=[speaker],
            non_streaming_mode=True, do_sample=False,
            subtalker_dosample=False, max_new_tokens=MOST + 1,
        )  # fmt: skip
        print(kind, len(codes[0]), codes[0][:, 0].tolist())
        found[f"{kind}, codes"] = codes[0].numpy().astype(np.int32)
        samples = codec(codes[0].T[None])[0, 0].numpy()
        found[kind] = np.concatenate([samples[:3000], samples[3000::37]])


def converted(sources: Path) -> str:
    """Return metadata and tensors of the file that llama.cpp's converter writes, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        return json.dumps(projector(sources, tiny.write_qwen(Path(folder) / "qwen")))


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, np.ndarray] = {}
    settings = Qwen3TTSTokenizerV2DecoderConfig(**tiny.STORED["codec_config"])
    settings._attn_implementation = "eager"
    tensors = {name.removeprefix("decoder."): array for name, array in tiny.codec_tensors().items()}
    codec = loaded(Qwen3TTSTokenizerV2Decoder(settings), tensors)
    with torch.no_grad():
        spoken(codec, found)
    found["converted"] = np.array(converted(Path(sys.argv[1])))
    np.savez_compressed(tiny.FIXTURE, **found)


if __name__ == "__main__":
    main()
