"""Write ``vision.npz``: tiny random models of transformers, the pixels that its processors make, and rows of an image.

It needs torch, transformers and Pillow.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, LlavaConfig, LlavaForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

sys.path.insert(0, str(Path(__file__).parents[1]))

from vision_files import FIXTURE, picture

VISION = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32, "patch_size": 8}
TEXT = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": 100, "pad_token_id": 0,
}  # fmt: skip


def randomized(model):
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
        else:
            parameter.data = torch.randn_like(parameter) * parameter[0].numel() ** -0.5
    return model.eval().float()


def rows(features):
    features = getattr(features, "pooler_output", features)
    return (torch.cat(list(features)) if isinstance(features, (list, tuple)) else features).numpy()


def weights(kind, model):
    wanted = ("vision", "connector", "projector")
    state = model.state_dict().items()
    return {f"{kind}.tensor.{name}": value.numpy() for name, value in state if any(word in name for word in wanted)}


@torch.no_grad()
def idefics3():
    vision = VISION | {"num_hidden_layers": 2, "hidden_act": "gelu_pytorch_tanh"}
    config = Idefics3Config(vision_config=vision, text_config=TEXT, scale_factor=2, image_token_id=5, pad_token_id=0)
    model = randomized(Idefics3ForConditionalGeneration(config))
    sizes = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
    processor = Idefics3ImageProcessorPil(**sizes, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    for size in ((50, 30), (201, 130), (7, 40), (64, 64)):
        pixels = processor(Image.fromarray(picture(*size)), return_tensors="np")["pixel_values"][0]
        name = "{}x{}".format(*size)
        yield f"idefics3.pixels.{name}", ((pixels * 0.5 + 0.5) * 255).round().astype(np.uint8)
        if size == (50, 30):
            mask = torch.ones(1, len(pixels), 32, 32, dtype=torch.bool)
            yield f"idefics3.rows.{name}", rows(model.model.get_image_features(torch.tensor(pixels)[None], mask))
    yield from weights("idefics3", model).items()


@torch.no_grad()
def llava():
    vision = VISION | {"model_type": "clip_vision_model", "num_hidden_layers": 3, "projection_dim": 32}
    model = randomized(
        LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=TEXT, image_token_index=5))
    )
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    for size in ((50, 30), (201, 130), (32, 32)):
        pixels = processor(Image.fromarray(picture(*size)), return_tensors="np")["pixel_values"]
        name = "{}x{}".format(*size)
        yield f"mlp.pixels.{name}", pixels.astype(np.float32)
        if size == (50, 30):
            yield f"mlp.rows.{name}", rows(model.model.get_image_features(torch.tensor(pixels)))
    yield from weights("mlp", model).items()


if __name__ == "__main__":
    torch.manual_seed(0)
    np.savez_compressed(FIXTURE, **dict(idefics3()), **dict(llava()))
