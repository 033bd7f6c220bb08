"""Make pocket_tts.npz: what Kyutai's package pocket-tts makes of the tiny model of tests/pocket_models.py."""

# The argument is the folder of llama.cpp's sources, whose converter writes the speech model.

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from llama_converter import projector
from pocket_tts.models.text_chunking import prepare_text_prompt, split_into_best_sentences
from pocket_tts.models.tts_model import TTSModel, stamp_state_names
from pocket_tts.modules.stateful_module import init_states
from pocket_tts.utils.config import Config

import pocket_models as tiny

TEXTS = [
    "hello", "the world, hello there", "It's 3.14 or so! What? Yes... no; maybe: " + "a word, and more words, " * 6,
    "One sentence here. " * 8, "“Quoted” and ‘single’ — ended -", "(closed)",
]  # fmt: skip


def config(tokenizer: Path) -> Config:
    tower = {
        "d_model": tiny.CODEC, "num_heads": tiny.CODEC // 64, "num_layers": tiny.CODEC_LAYERS, "layer_scale": 0.01,
        "context": 250, "dim_feedforward": tiny.CODEC_FF, "input_dimension": tiny.CODEC,
        "output_dimensions": [tiny.CODEC],
    }  # fmt: skip
    seanet = {
        "dimension": tiny.CODEC, "channels": 1, "n_filters": tiny.FILTERS, "n_residual_layers": 1, "ratios": [6, 5, 4],
        "kernel_size": 7, "residual_kernel_size": 3, "last_kernel_size": 3, "dilation_base": 2,
        "pad_mode": "constant", "compress": 2,
    }  # fmt: skip
    table = {"dim": tiny.WIDTH, "n_bins": tiny.N_TOKENS, "tokenizer": "tokenizers", "tokenizer_path": str(tokenizer)}
    transformer = {
        "d_model": tiny.WIDTH, "hidden_scale": 4, "max_period": 10000, "num_heads": tiny.WIDTH // 64,
        "num_layers": tiny.N_LAYER, "dim_feedforward": tiny.N_FF,
    }  # fmt: skip
    return Config.model_validate({
        "flow_lm": {
            "insert_bos_before_voice": True, "dtype": "float32", "flow": {"depth": tiny.FLOW_BLOCKS, "dim": tiny.FLOW},
            "transformer": transformer, "lookup_table": table,
        },
        "mimi": {
            "dtype": "float32", "sample_rate": 24000, "inner_dim": tiny.N_VALUES, "outer_dim": tiny.CODEC,
            "channels": 1, "frame_rate": 12.5, "seanet": seanet, "transformer": tower,
            "quantizer": {"dimension": tiny.N_VALUES, "output_dimension": tiny.CODEC},
        },
        "replace_characters": {"’": "'", "‘": "'"},
    })  # fmt: skip


def load(tokenizer: Path, end_bias: float) -> TTSModel:
    torch.manual_seed(0)
    import pocket_tts.modules.mlp as mlp

    embedder = mlp.TimestepEmbedder.__init__

    def smaller(self, hidden_size, frequency_embedding_size=256, max_period=10000):
        embedder(self, hidden_size, 2 * tiny.FREQS, max_period)

    mlp.TimestepEmbedder.__init__ = smaller
    model = TTSModel._from_pydantic_config_with_weights(config(tokenizer), 0.0, 1, None, -4.0)
    mlp.TimestepEmbedder.__init__ = embedder
    tensors = {name: torch.from_numpy(array.copy()) for name, array in tiny.tensors(end_bias).items()}
    model.load_state_dict(tensors, strict=True)
    stamp_state_names(model)
    return model.eval()


def spoken(model: TTSModel, text: str, voice: torch.Tensor | None) -> np.ndarray:
    state = (
        init_states(model.flow_lm, batch_size=1, sequence_length=1)
        if voice is None
        else model.get_state_for_audio_prompt(voice)
    )
    return torch.cat(list(model.generate_audio_stream(state, text))).numpy()


def converted(sources: Path) -> str:
    """Return metadata and tensors of the file that llama.cpp's converter writes, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        return json.dumps(projector(sources, tiny.write_pocket(Path(folder) / "english")))


def main() -> None:
    found: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(tiny.STORED["tokenizer"]))
        model = load(path, -8.0)
        voice = torch.from_numpy(tiny.voice())[None]
        with torch.no_grad():
            for name, end_bias in (("ends", 40.0), ("never ends", -40.0)):
                model = load(path, end_bias)
                for kind, heard in (("plain", None), ("voice", voice)):
                    sound = spoken(model, tiny.TEXT, heard)
                    found[f"{name}, {kind}"] = np.concatenate([sound[:3000], sound[3000 : 30 * 1920 : 37]])
                    found[f"{name}, {kind}, length"] = np.array(len(sound))
            from pocket_tts.data.audio_utils import end_on_pause

            found["voice rows"] = model._encode_audio(end_on_pause(voice, 24000)[None])[0].numpy()
            encode = model.flow_lm.conditioner.tokenizer
            pieces = []
            for text in TEXTS:
                chunks = split_into_best_sentences(encode, text, 50, False, False, True, True, {"’": "'", "‘": "'"})
                ready = [prepare_text_prompt(c, False, False, True, True, {"’": "'", "‘": "'"})[0] for c in chunks]
                pieces.append([(chunk, encode.encode(chunk)) for chunk in ready])
            found["converted"] = np.array(converted(Path(sys.argv[1])))
            found["pieces"] = np.array(json.dumps({"texts": TEXTS, "pieces": pieces}))
    np.savez_compressed(tiny.FIXTURE, **found)


if __name__ == "__main__":
    main()
