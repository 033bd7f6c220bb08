"""Projectors of checkpoints as llama.cpp's converter knows them: its keys, and its tensors bit for bit."""

import json

import pytest

from converter_variants import FIXED, FIXTURE, MORE, VARIANTS
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model
from vision_models import described

THEIRS = json.loads(FIXTURE.read_text())


@pytest.mark.parametrize("name", VARIANTS)
def test_projectors_are_those_of_llama_cpps_converter(tmp_path, name):
    folder = tmp_path / name
    VARIANTS[name](folder)
    with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, tmp_path / "mmproj.gguf")
    ours, theirs, fixed = described(tmp_path / "mmproj.gguf"), THEIRS[name], FIXED.get(name, set())
    for part in ("metadata", "tensors"):
        mine, right = (
            {key: value for key, value in file[part].items() if key not in fixed and not any(m in key for m in MORE)}
            for file in (ours, theirs)
        )
        assert mine == right
    if name == "nemotron_v2_vl":  # its table of positions is resized
        assert ours["tensors"]["v.position_embd.weight"][:2] == theirs["tensors"]["v.position_embd.weight"][:2]
