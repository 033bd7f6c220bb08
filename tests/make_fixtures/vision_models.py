"""Make tests/fixtures/vision_models: tiny vision models, by transformers: pixels, rows, and texts after an image.

    python tests/make_fixtures/vision_models.py path/to/llama.cpp [case...]

It needs torch, torchvision, transformers, gguf and Pillow.

A case is a configuration in cases.json; its weights follow from the names of tensors (tests/checkpoints.py). Stored
are shapes, what the processor makes of pictures, rows of an image, and the logits of the tokens after a prompt with
this image; also metadata and digests of tensors of the projector that llama.cpp's converter writes, for the classes
that it knows.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from transformers.image_processing_backends import TorchvisionBackend
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import HunYuanVLImageProcessorPil
from transformers.models.hunyuan_vl.modeling_hunyuan_vl import HunYuanVLRotaryEmbedding
from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil
from transformers.models.kimi_k25.image_processing_kimi_k25 import Kimi_K25ImageProcessor
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
from transformers.models.llama4.image_processing_llama4 import Llama4ImageProcessor
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.muse_glimmer.image_processing_muse_glimmer import MuseGlimmerImageProcessor
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from llama_converter import projector
from pillow_resizing import by_pillow

from checkpoints import weights, write_cases
from vision_files import picture
from vision_models import BREAK, CASES, FIXTURE, IMAGE, SIZE, SIZES, write_folder

N_GENERATED = 4
SQUARE = {"height": 64, "width": 64}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
PROCESSORS = {
    "gemma3": lambda: Gemma3ImageProcessorPil(size=SQUARE, **HALF),
    "qwen2vl": lambda: qwen(8, 16 * 16 * 4, 16 * 16 * 64), "qwen25vl": lambda: qwen(8, 16 * 16 * 4, 16 * 16 * 64),
    "exaone45": lambda: qwen(8, 16 * 16 * 4, 16 * 16 * 64),
    "dots3note": lambda: qwen(8, 16 * 16 * 4, 16 * 16 * 64, temporal_patch_size=1),
    "qwen3vl": lambda: qwen(8, 16 * 16 * 4, 16 * 16 * 64, **HALF),
    "qwen3vlmoe": lambda: qwen(8, 16 * 16 * 4, 16 * 16 * 64, **HALF),
    "qwen35": lambda: qwen(8, 16 * 16 * 4, 16 * 16 * 64, **HALF),
    "hunyuanvl": lambda: HunYuanVLImageProcessorPil(
        patch_size=8, size={"shortest_edge": 4 * 16**2, "longest_edge": 64 * 16**2},
    ),
    "minicpmv46": lambda: MiniCPMV4_6ImageProcessorPil(patch_size=8, scale_resolution=96, **HALF),
    "llavanext": lambda: llava_next("llavanext"), "granite4vision": lambda: llava_next("granite4vision", **HALF),
    "granitevision": lambda: llava_next("granitevision", **HALF),
    "janus": lambda: JanusImageProcessorPil(size={"height": 64, "width": 64}, **HALF),
    "lfm2vl": lambda: Lfm2VlImageProcessor(
        min_image_tokens=4, max_image_tokens=16, tile_size=64, max_tiles=4, encoder_patch_size=8,
    ),
    "pixtral": lambda: PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size={"height": 8, "width": 8}),
    "mistral3": lambda: PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size={"height": 16, "width": 16}),
    "mistrallarge4": lambda: PixtralImageProcessorPil(
        size={"longest_edge": 64}, patch_size={"height": 16, "width": 16}
    ),
    "lightonocr": lambda: PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size={"height": 16, "width": 16}),
    "internvl": lambda: GotOcr2ImageProcessorPil(size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=6),
    "gemma4": lambda: Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70),
    "gemma4unified": lambda: Gemma4ImageProcessorPil(patch_size=12, max_soft_tokens=70, pooling_kernel_size=1),
    "glm4v": lambda: glm(), "glmocr": lambda: glm(),
    "paddleocr": lambda: PaddleOCRVLImageProcessorPil(patch_size=8, min_pixels=4 * 16**2, max_pixels=64 * 16**2),
    "kimik25": lambda: Kimi_K25ImageProcessor(patch_size=8, max_patches=64),
    "museglimmer": lambda: MuseGlimmerImageProcessor(patch_size=8, max_image_tokens=24),
    "llama4": lambda: Llama4ImageProcessor(size={"height": 32, "width": 32}, max_patches=4),
}  # fmt: skip
TORCHVISION = ("kimik25", "lfm2vl", "llama4", "museglimmer")  # have no processor without it


def llava_next(kind, **more):
    config = CASES[kind]["config"]
    sizes, side = config["image_grid_pinpoints"], config["vision_config"]["image_size"]
    square = {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}
    return LlavaNextImageProcessorPil(image_grid_pinpoints=sizes, **square, **more)


def glm():
    sizes = {"shortest_edge": 8 * 16**2, "longest_edge": 128 * 16**2}
    return Glm4vImageProcessorPil(size=sizes, patch_size=8)


def qwen(patch, least, most, **more):
    sizes = {"shortest_edge": least, "longest_edge": most}
    return Qwen2VLImageProcessorPil(size=sizes, patch_size=patch, merge_size=2, **more)


def make_model(kind, case):
    """Return a model with the weights of its tensors' names, and the shapes of these tensors, as it is published."""
    config = getattr(transformers, case["config_class"])(**case["config"])
    config._attn_implementation = "eager"
    model_class = getattr(transformers, case["class"])
    with tempfile.TemporaryDirectory() as folder:
        model_class(config).save_pretrained(folder)
        with safetensors.safe_open(Path(folder) / "model.safetensors", "np") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        if kind in ("gemma3", "granite4vision"):  # as their authors stored them
            shapes = {
                name.replace("vision_tower.", "vision_tower.vision_model."): shape for name, shape in shapes.items()
            }
        if kind == "qwen3vlmoe":  # as its authors stored them
            shapes = {
                name: [*shape[:-2], *shape[:-3:-1]] if ".experts." in name else shape for name, shape in shapes.items()
            }
        if kind == "janus":  # the other half of the model makes images
            shapes = {
                name: shape
                for name, shape in shapes.items()
                if not name.startswith(("model.vqmodel.", "model.generation_"))
            }
        if kind == "kimik25":
            shapes = {_published(name): shape for name, shape in shapes.items()}
        values = {name: torch.tensor(weights(name, shape)) for name, shape in shapes.items()}
        save_file(values, Path(folder) / "model.safetensors", {"format": "pt"})
        return model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval(), shapes


LAYERS = "language_model.model.layers."


def _published(name):
    """Return a tensor's name in the checkpoint of Kimi K2.5 for that which transformers writes."""
    name = name.replace("model.mm_projector.", "mm_projector.").replace("language_model.model.blocks.", LAYERS)
    return name.replace("vision_tower.encoder.patch_embed.", "vision_tower.patch_embed.")


def arguments(kind, processed):
    """Return transformers' arguments for an image, and the rows and columns of its tokens, if they have breaks."""
    pixels = torch.tensor(np.array(processed["pixel_values"]), dtype=torch.float32)
    if kind == "llama4":  # which rounds to bfloat16
        return {"pixel_values": (pixels / 255 - 0.5) / 0.5}
    if kind.startswith("gemma4"):
        return {"pixel_values": pixels, "image_position_ids": torch.tensor(np.array(processed["image_position_ids"]))}
    if "image_grid_thw" in processed:
        return {"pixel_values": pixels, "image_grid_thw": torch.tensor(np.array(processed["image_grid_thw"]))}
    if kind == "lfm2vl":
        patches = resized_by_pillow(*processed["spatial_shapes"][0].tolist())
        pixels[0, : len(patches)] = patches
        return {
            "pixel_values": pixels,
            **{name: processed[name] for name in ("spatial_shapes", "pixel_attention_mask")},
        }
    if kind == "minicpmv46":
        return {"pixel_values": pixels, "target_sizes": torch.tensor(np.array(processed["target_sizes"]))}
    if kind in ("pixtral", "mistral3", "mistrallarge4", "lightonocr", "llavanext", "granitevision", "granite4vision"):
        return {"pixel_values": pixels, "image_sizes": torch.tensor(np.array(processed["image_sizes"]))}
    return {"pixel_values": pixels}


def resized_by_pillow(rows, columns):
    """Return the patches of the picture of SIZE, since torchvision rounds pixels otherwise."""
    image = Image.fromarray(picture(*SIZE)).resize((8 * columns, 8 * rows), Image.Resampling.BILINEAR)
    cells = np.asarray(image, np.float32).reshape(rows, 8, columns, 8, 3).swapaxes(1, 2)
    return torch.from_numpy((cells.reshape(rows * columns, -1) / 255 - 0.5) / 0.5)


def features(kind, model, given):
    """Return what the model makes of an image."""
    if kind == "llama4":  # has the projector apart
        return model.multi_modal_projector(model.vision_model(**given).last_hidden_state)
    if kind == "museglimmer":  # the text model normalizes rows like its own embeddings
        rows = model.model.vision_tower(given["pixel_values"], grid_thw=given["image_grid_thw"]).last_hidden_state
        return model.model.vision_projection(model.model.vision_adapter(rows))
    return model.model.get_image_features(**given)


def rows_of(features):
    deep = getattr(features, "deepstack_features", None)
    if deep and isinstance(deep[0], tuple):  # with the number of a layer each
        return torch.cat([torch.cat(list(rows)) for _, rows in sorted(deep, key=lambda pair: pair[0])], -1).numpy()
    features = getattr(features, "pooler_output", features)
    rows = torch.cat(list(features)) if isinstance(features, (list, tuple)) else features
    rows = rows.reshape(-1, rows.shape[-1])
    of_layers = [torch.cat(list(layer)) if isinstance(layer, (list, tuple)) else layer for layer in deep or ()]
    return torch.cat([rows, *of_layers], -1).numpy()


def prompt_of(kind, n_rows, given):
    """Return the token ids of a prompt with an image; those of the image's rows are IMAGE."""
    image = [IMAGE] * n_rows
    if kind in ("pixtral", "mistral3", "mistrallarge4"):
        side = 8 if kind == "pixtral" else 16
        columns = int(given["image_sizes"][0][1]) // side
        lines = [[IMAGE] * columns for _ in range(n_rows // columns)]
        image = [token for line in lines for token in (*line, BREAK)][:-1]
    before, after = ([(7 * i + start) % 300 for i in range(n)] for start, n in ((3, 13), (5, 16)))
    return [*before, *image, *after]


def recomposed(self, freq):
    """Return frequencies by axis as the authors' code: both values of a pair turn by the same one."""
    parts = torch.cat((freq, freq), -1).split(self.mrope_section * 2, -1)
    return torch.cat([part[i % len(self.mrope_section)] for i, part in enumerate(parts)], -1)


@torch.no_grad()
def make(kind, case):
    HunYuanVLRotaryEmbedding.recomposition_frequencies = recomposed  # which takes others in transformers 5.24
    model, shapes = make_model(kind, case)
    processor = PROCESSORS[kind]()
    if kind == "museglimmer":  # its own method chooses the size
        TorchvisionBackend.resize = lambda self, image, size, resample, **_: by_pillow(image, size, resample)
    elif kind in TORCHVISION and kind != "lfm2vl":
        processor.resize = by_pillow
    values = {}
    for size in (*SIZES, SIZE):
        raw = {"do_rescale": False, "do_normalize": False} if kind == "llama4" else {}
        tensors = "pt" if kind in TORCHVISION else "np"
        processed = processor(Image.fromarray(picture(*size)), return_tensors=tensors, **raw)
        pixels = np.array(processed["pixel_values"], np.float32)
        values["pixels.{}x{}".format(*size)] = unscaled(kind, pixels, processor, processed)
    given = arguments(kind, processed)
    rows = rows_of(features(kind, model, given))
    ids = prompt_of(kind, len(rows), given)
    values |= {"rows": rows, "ids": np.array(ids, np.int32)}
    logits = []
    for _ in range(N_GENERATED):
        types = torch.tensor([[int(token == IMAGE) for token in ids]])
        more = {"token_type_ids": types} if kind == "gemma3" else {}
        more = {"mm_token_type_ids": types} if kind.startswith(("qwen", "gemma4", "glm", "paddle", "hunyuan")) else more
        if kind == "llama4":  # whose own method fails in transformers 5.24
            embeddings = model.get_input_embeddings()(torch.tensor([ids]))
            embeddings[0, torch.tensor(ids) == IMAGE] = torch.tensor(rows)
            out = model.language_model(inputs_embeds=embeddings, use_cache=False).logits[0, -1]
        else:
            out = model(input_ids=torch.tensor([ids]), use_cache=False, **more, **given).logits[0, -1]
        logits.append(torch.log_softmax(out.float(), -1).numpy())
        ids = [*ids, int(out.argmax())]
    return shapes, values | {"logprobs": np.stack(logits)}


def unscaled(kind, pixels, processor, processed):
    """Return normalized pixels as those of the image, uint8 with channels last, or patches as they are."""
    mean, std = (np.array(values, np.float32) for values in (processor.image_mean, processor.image_std))
    if kind == "lfm2vl":  # patches of all tiles, without padding
        channels = pixels[processed["pixel_attention_mask"].numpy() > 0].reshape(-1, 64, 3)
    elif kind == "minicpmv46":  # patches of all slices
        channels = pixels[0].reshape(3, 8, -1, 8).transpose(2, 1, 3, 0).reshape(-1, 64, 3)
    elif kind == "llama4":
        return pixels.transpose(0, 2, 3, 1).astype(np.uint8)
    elif kind.startswith("gemma4"):
        known = np.array(processed["image_position_ids"])[0, :, 0] >= 0
        return (pixels[0, known].reshape(np.count_nonzero(known), -1, 3) * 255).round().astype(np.uint8)
    elif kind == "museglimmer":  # both frames of a patch
        channels = pixels.reshape(len(pixels), 2, 3, -1)[:, 0].transpose(0, 2, 1)
    elif kind in ("paddleocr", "kimik25", "hunyuanvl", "dots3note"):
        channels = pixels.reshape(len(pixels), 3, -1).transpose(0, 2, 1)
    elif kind.startswith(("qwen", "glm", "exaone")):
        channels = pixels.reshape(len(pixels), 3, 2, -1)[:, :, 0].transpose(0, 2, 1)
    else:
        pixels = pixels[0] if kind in ("llavanext", "granitevision", "granite4vision") else pixels
        channels = pixels.transpose(0, 2, 3, 1)
    return ((channels * std + mean) * 255).round().astype(np.uint8)


def theirs(sources, kind, shapes):
    """Return metadata and tensors of the projector that llama.cpp's converter writes; None if it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder) / kind, kind, shapes)
        return projector(sources, Path(folder) / kind)


if __name__ == "__main__":
    sources, *names = sys.argv[1:]
    names = names or list(CASES)
    values = dict(np.load(FIXTURE)) if FIXTURE.exists() else {}
    for name in names:
        shapes, made = make(name, CASES[name])
        values = {key: value for key, value in values.items() if not key.startswith(f"{name}.")}
        values |= {f"{name}.{key}": value for key, value in made.items()}
        if CASES[name].get("theirs", True):  # None: the converter cannot
            CASES[name]["theirs"] = theirs(Path(sources), name, shapes)
        CASES[name]["shapes"] = shapes
        write_cases(FIXTURE.with_name("cases.json"), CASES)
        np.savez_compressed(FIXTURE, **values)
