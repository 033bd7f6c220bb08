"""Projectors of checkpoints as llama.cpp's converter knows them, where other tests' tiny ones have another shape."""

import json
from pathlib import Path

import pytest

import vision_formulas
from checkpoints import write_checkpoint
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model
from vision_models import described

CASES = json.loads((Path(__file__).parents[2] / "fixtures" / "converter_variants.json").read_text())
#: Keys that it does not write, and those of sound.
MORE = ("min_pixels", "max_pixels", "preproc_", "attention.head_dim", ".audio.", "has_audio")
#: Keys whose values are those of published models in its code, and tensors that it resizes in other rounding.
FIXED = {"lfm2vl": {"clip.vision.image_size"}, "nemotron_v2_vl": {"clip.vision.block_count", "v.position_embd.weight"}}


def add_sound(folder):
    """Add the parts of sound without which llama.cpp's converter stops for MiMo."""
    config = json.loads((folder / "config.json").read_text())
    config["audio_config"] = {"input_local_layers": 1, "group_size": 1, "audio_channels": 1}
    (folder / "config.json").write_text(json.dumps(config))
    sound = folder / "audio_tokenizer"
    sound.mkdir()
    keys = {"d_model": 32, "encoder_ffn_dim": 48, "encoder_attention_heads": 2, "n_mels": 128, "encoder_layers": 1}
    (sound / "config.json").write_text(json.dumps({**keys, "encoder_attn_window_size": [4, 4]}))
    tensor = {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}
    header = json.dumps({"encoder.quantizer.vq.layers.0._codebook.embed": tensor}).encode()
    (sound / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))


@pytest.mark.parametrize("name", CASES)
def test_projectors_are_those_of_llama_cpps_converter(tmp_path, name):
    folder, theirs, fixed = tmp_path / name, CASES[name], FIXED.get(name, set())
    if "config" in theirs:
        write_checkpoint(folder, theirs["config"], theirs["shapes"], "bpe")
        (folder / "preprocessor_config.json").write_text(json.dumps(theirs["processor"]))
    else:
        vision_formulas.write_folder(folder, name)
    if name == "mimovl":
        add_sound(folder)
    with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, tmp_path / "mmproj.gguf")
    ours = described(tmp_path / "mmproj.gguf")
    for part in ("metadata", "tensors"):
        mine, right = (
            {key: value for key, value in file[part].items() if key not in fixed and not any(m in key for m in MORE)}
            for file in (ours, theirs)
        )
        assert mine == right
    if name == "nemotron_v2_vl":  # its table of positions is resized
        assert ours["tensors"]["v.position_embd.weight"][:2] == theirs["tensors"]["v.position_embd.weight"][:2]
