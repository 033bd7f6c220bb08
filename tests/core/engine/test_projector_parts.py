"""Projector files that see, speak, or both: one answer for encoders of prompts and for speech."""

import pytest

import pocket_models as pocket
from gguf_files import write_gguf
from pumice.config import load_config
from pumice.convert import ConvertOptions, write_model
from pumice.engine.media.encoders import ChosenProjector, ProjectorParts, trace_projector
from pumice.engine.media.projector import Projector
from pumice.engine.speech import SpeechGraphs
from pumice.errors import ModelError
from pumice.gguf import GGMLType, GGUFFile
from pumice.model_files.opening import check_projector, open_model
from pumice.registry import get_registry
from vision_models import write_folder

KIND = "gemma3"


@pytest.mark.parametrize(
    ("keys", "media", "speech"),
    [
        ({"has_vision_encoder": True}, ("image",), ""),
        ({"has_vision_encoder": True, "has_audio_encoder": True}, ("image", "audio"), ""),
        ({"has_gen_audio_encoder": True, "gen.audio.projector_type": "x_gen"}, (), "x_gen"),
        (
            {
                "has_vision_encoder": True,
                "has_audio_encoder": True,
                "audio.projector_type": "x_spkenc",
                "has_gen_audio_encoder": True,
                "gen.audio.projector_type": "x_gen",
            },
            ("image",),
            "x_gen",
        ),
        ({"has_gen_audio_encoder": True, "gen.audio.projector_type": 7}, (), ""),
        ({"gen.audio.projector_type": "x_gen"}, (), ""),
    ],
)
def test_parts_are_told_by_the_keys(keys, media, speech):
    assert ProjectorParts.of({f"clip.{key}": value for key, value in keys.items()}) == ProjectorParts(media, speech)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Join a projector that sees and one that speaks."""
    folder = tmp_path_factory.mktemp("both")
    seeing = write_folder(folder / KIND, KIND)
    speaking = pocket.write_pocket(folder / "english")
    metadata, tensors = {"general.architecture": "clip"}, {}
    for checkpoint in (speaking, seeing):
        with open_model(checkpoint, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
            write_model(file, checkpoint / "mmproj.gguf")
        with GGUFFile.open(checkpoint / "mmproj.gguf") as file:
            metadata |= {key: value for key, value in file.metadata.items() if key.startswith("clip.")}
            tensors |= {name: tensor.dequantize().copy() for name, tensor in file.tensors.items()}
    metadata["clip.vision.projector_type"] = metadata.pop("clip.projector_type")
    return write_gguf(folder / "mmproj.gguf", metadata, tensors)


def test_a_file_that_sees_and_speaks_does_both(path):
    config = load_config(overrides={"backend": "numpy"})
    registry = get_registry(config)
    assert ChosenProjector(path, str(path)).parts == ProjectorParts(("image",), "pockettts_gen")
    projector = Projector(path, config, registry)
    assert projector.kinds == ["image"]
    projector.close()
    graphs = SpeechGraphs(path, config, registry)
    assert graphs.model.samples_per_frame == 1920
    graphs.close()
    with GGUFFile.open(path) as file:
        check_projector(file)


def test_a_file_that_only_speaks_is_no_projector_of_media(path):
    with GGUFFile.open(path.parent / "english" / "mmproj.gguf") as file:
        check_projector(file)
        with pytest.raises(ModelError, match="not a projector of images or sound"):
            trace_projector(file, get_registry(load_config()))
