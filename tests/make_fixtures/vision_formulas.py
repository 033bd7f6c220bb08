"""Make tests/fixtures/vision_formulas: rows of a picture by transformers' modules and by formulas in PyTorch.

    python tests/make_fixtures/vision_formulas.py path/to/llama.cpp [case...]

It needs torch, torchvision, transformers, timm, gguf and Pillow.

Where transformers has the encoder (GLM-5.3, MiniMax-M3, Step3-VL) its module computes the rows; where it has an encoder
like it (SigLIP 2, Qwen3-VL, ConvNeXt V2) the projector behind it is written here. Pixels are those of transformers'
processors, where it has them. Also stored are metadata and digests of tensors of the projector that llama.cpp's
converter writes; it runs without its assertions, some of which want the sizes of the published models.

Rows of the other cases are kept as they are: formulas without a module of transformers gave them, which are in
``git show f5c87526:tests/make_fixtures/vision_formulas.py``, and llama.cpp's libmtmd computes them too
(``libmtmd.py``).
"""

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from timm.layers import RmsNorm2d
from timm.models._efficientnet_builder import decode_arch_def
from timm.models.mobilenetv5 import MobileNetV5Encoder
from torch import Tensor
from transformers import (
    ConvNextV2Config,
    ConvNextV2Model,
    Siglip2VisionConfig,
)
from transformers.image_processing_backends import TorchvisionBackend
from transformers.models.deepseek_ocr2.configuration_deepseek_ocr2 import (
    DeepseekOcr2SamVisionConfig,
    DeepseekOcr2VisionEncoderConfig,
)
from transformers.models.deepseek_ocr2.image_processing_pil_deepseek_ocr2 import DeepseekOcr2ImageProcessorPil
from transformers.models.deepseek_ocr2.modeling_deepseek_ocr2 import (
    DeepseekOcr2SamVisionEncoder,
    DeepseekOcr2VisionEncoder,
)
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextVisionConfig
from transformers.models.glm5_next.image_processing_pil_glm5_next import Glm5NextImageProcessorPil
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextVisionModel
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLVisionConfig
from transformers.models.minimax_m3_vl.image_processing_minimax_m3_vl import MiniMaxM3VLImageProcessor
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLVisionModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel
from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionModel
from transformers.models.step3p7.configuration_step3p7 import Step3p7VisionConfig
from transformers.models.step3p7.image_processing_step3p7 import Step3p7ImageProcessor
from transformers.models.step3p7.modeling_step3p7 import Step3p7VisionModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from llama_converter import projector
from pillow_resizing import by_pillow

from checkpoints import weights, write_cases
from vision_files import picture
from vision_formulas import (
    CASES,
    FILES,
    FIXTURE,
    KEYS,
    SIZE,
    SIZES,
    TEXT,
    YASA_DEPTHS,
    YASA_WIDTHS,
    N,
    write_folder,
)

Weights = dict[str, Tensor]
SMALL = {"hidden_size": N, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 2}


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    weight = w[f"{name}.weight"]
    return F.linear(x, weight.reshape(len(weight), -1), w.get(f"{name}.bias"))


def norm(w: Weights, name: str, x: Tensor, eps: float = 1e-6) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)


def rms(weight: Tensor, x: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def loaded(model: torch.nn.Module, values: Weights) -> torch.nn.Module:
    missing, unexpected = model.load_state_dict(values, strict=False)
    assert not unexpected, unexpected
    assert not [name for name in missing if "inv_freq" not in name and "head." not in name], missing
    return model.eval()


def below(w: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix): value for name, value in w.items() if name.startswith(prefix)}


def cells(pixels: np.ndarray, merge: int, size: int, mean: list[float], std: list[float]) -> Tensor:
    """Return patches ``[n, 3, size, size]`` of an image, square by square of ``merge * merge``."""
    x = torch.tensor((pixels.astype(np.float32) / 255 - np.float32(mean)) / np.float32(std))
    rows, columns = x.shape[0] // size // merge, x.shape[1] // size // merge
    x = x.reshape(rows, merge, size, columns, merge, size, 3).permute(0, 3, 1, 4, 6, 2, 5)
    return x.reshape(-1, 3, size, size)


def resized(size: tuple[int, int], filter: Image.Resampling) -> np.ndarray:
    """Return the picture in a size of ``(height, width)``."""
    return np.array(Image.fromarray(picture(*SIZE)).resize(size[::-1], filter))


def step3vl(w: Weights) -> dict[str, np.ndarray]:
    config = Step3p7VisionConfig(**SMALL, image_size=52, patch_size=4, mlp_ratio=1.5)
    own = below(w, "vision_model.")
    named = {
        "embeddings.patch_embedding.weight": own["conv1.weight"],
        "embeddings.position_embedding.weight": own["positional_embedding"],
    }
    parts = {
        "ln_pre.": "pre_layernorm.",
        "vit_downsampler": "downsampler",
        "transformer.resblocks.": "layers.",
        ".ls_1.gamma": ".lambda_1",
        ".ls_2.gamma": ".lambda_2",
        ".mlp.c_fc.": ".mlp.fc1.",
        ".mlp.c_proj.": ".mlp.fc2.",
        ".attn.": ".self_attn.",
        ".ln_1.": ".layernorm_before.",
        ".ln_2.": ".layernorm_after.",
    }
    for name, value in own.items():
        if name in ("conv1.weight", "positional_embedding"):
            continue
        new = name
        for old, replacement in parts.items():
            new = new.replace(old, replacement)
        if "in_proj" not in new:
            named[new] = value
            continue
        for letter, part in zip("qkv", value.chunk(3), strict=True):
            if letter != "v":  # pairs of neighbours become pairs half a head apart
                part = part.reshape(2, 8, 2, *part.shape[1:]).transpose(1, 2).reshape(part.shape)
            named[new.replace("in_proj_", f"{letter}_proj.")] = part
    model = loaded(Step3p7VisionModel(config), named)
    processor = Step3p7ImageProcessor(size={"height": 52, "width": 52}, patch_size=36)
    processor.resize = by_pillow_of_any
    values, rows = {}, []
    for size in SIZES:
        made = processor(Image.fromarray(picture(*size)), return_tensors="pt")
        pixels = [*made.get("pixel_values_local", []), *made["pixel_values"]]
        mean, std = torch.tensor(processor.image_mean), torch.tensor(processor.image_std)
        flat = [((x.permute(1, 2, 0) * std + mean) * 255).reshape(-1, 3) for x in pixels]
        values["pixels.{}x{}".format(*size)] = torch.cat(flat).round().numpy().astype(np.uint8)
    for x in pixels:
        y = model(x[None]).last_hidden_state
        rows.append(F.linear(y.flatten(2)[0].T if y.ndim == 4 else y[0], w["vit_large_projector.weight"]))
    return values | {"rows": torch.cat(rows)}


def by_pillow_of_any(images, size, resample, **_):
    return by_pillow(images, size, resample).to(torch.uint8)


def patches_of(processor, mean, std, frames: int, tensors: str) -> tuple[dict[str, np.ndarray], dict]:
    """Return pixels by a processor that orders patches by square, and what it makes of the last picture."""
    values = {}
    for size in SIZES:
        made = processor(Image.fromarray(picture(*size)), return_tensors=tensors)
        pixels = np.array(made["pixel_values"], np.float32)
        pixels = pixels.reshape(len(pixels), 3, frames, -1)[:, :, 0].transpose(0, 2, 1)
        pixels = (pixels * np.float32(std) + np.float32(mean)) * 255
        values["pixels.{}x{}".format(*size)] = pixels.round().astype(np.uint8)
    return values, made


def sam(w: Weights, side: int, patch: int) -> torch.nn.Module:
    """Return the encoder of Segment Anything."""
    config = DeepseekOcr2SamVisionConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, image_size=side * patch, patch_size=patch,
        mlp_dim=48, output_channels=24, downsample_channels=[24, N],
    )  # fmt: skip
    config._attn_implementation = "eager"
    names = {
        "blocks.": "layers.", ".norm1.": ".layer_norm1.", ".norm2.": ".layer_norm2.", "patch_embed.proj.":
        "patch_embed.projection.", "neck.0.": "neck.conv1.", "neck.1.": "neck.layer_norm1.", "neck.2.": "neck.conv2.",
        "neck.3.": "neck.layer_norm2.", "net_2.": "proj.conv1.", "net_3.": "proj.conv2.",
    }  # fmt: skip
    values = {}
    for name, value in below(w, "model.sam_model.").items():
        for old, new in names.items():
            name = name.replace(old, new)
        values[name] = value
    return loaded(DeepseekOcr2SamVisionEncoder(config), values)


def tiled(
    size: int, tile: int, most: int, last: tuple[int, int], pads: bool = False
) -> tuple[dict[str, np.ndarray], list[Tensor]]:
    """Return the pixels of pictures as DeepSeek-OCR's processor cuts them, and the images of a picture.

    ``pads``: the whole is put on a square by Pillow, as the first version's own code does.
    """
    processor = DeepseekOcr2ImageProcessorPil(
        size={"height": size, "width": size}, tile_size=tile, max_patches=most, image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )  # fmt: skip
    values = {}
    for picture_size in (*SIZES, last):
        made = processor(Image.fromarray(picture(*picture_size)), return_tensors="np")
        images = [*made.get("pixel_values_local", []), *made["pixel_values"]]
        if pads:
            image = Image.fromarray(picture(*picture_size))
            square = ImageOps.pad(image, (size, size), Image.Resampling.BICUBIC, (127, 127, 127))
            images[-1] = np.array(square, np.float32).transpose(2, 0, 1) / 255 * 2 - 1
        flat = [((x.transpose(1, 2, 0) * 0.5 + 0.5) * 255).reshape(-1, 3) for x in images]
        values["pixels.{}x{}".format(*picture_size)] = np.concatenate(flat).round().astype(np.uint8)
    return values, [torch.tensor(np.array(x)).float() for x in images]


def deepseekocr(w: Weights) -> dict[str, np.ndarray]:
    values, images = tiled(64, 40, 9, CASES["deepseekocr"]["picture"], pads=True)
    first, p, rows = sam(w, 16, 4), "model.vision_model.", []
    for image in images:
        below_clip = first(image[None]).last_hidden_state.flatten(2)[0].T
        side = int(len(below_clip) ** 0.5)
        table = w[f"{p}embeddings.position_embedding.weight"]
        square = table[1:].T.reshape(1, N, 4, 4)
        if side != 4:
            square = F.interpolate(square, size=(side, side), mode="bicubic", antialias=True, align_corners=False)
        x = torch.cat([w[f"{p}embeddings.class_embedding"][None], below_clip])
        x = norm(w, f"{p}pre_layrnorm", x + torch.cat([table[:1], square.flatten(2)[0].T]), 1e-5)
        for i in range(4):
            layer = f"{p}transformer.layers.{i}."
            y = norm(w, f"{layer}layer_norm1", x, 1e-5)
            q, k, v = linear(w, f"{layer}self_attn.qkv_proj", y).unflatten(-1, (3, 2, -1)).unbind(1)
            x = x + linear(w, f"{layer}self_attn.out_proj", attended(q, k, v))
            y = linear(w, f"{layer}mlp.fc1", norm(w, f"{layer}layer_norm2", x, 1e-5))
            x = x + linear(w, f"{layer}mlp.fc2", y * torch.sigmoid(1.702 * y))
        x = linear(w, "model.projector.layers", torch.cat([x[1:], below_clip], 1))
        rows.append(x.reshape(side, side, TEXT))
    lines = torch.cat([torch.cat(rows[i : i + 2], 1) for i in (0, 2)])  # 2 x 2 tiles
    parts = []
    for x in (lines, rows[-1]):
        ends = w["model.image_newline"].expand(len(x), 1, -1)
        parts.append(torch.cat([x, ends], 1).flatten(0, 1))
    return values | {"rows": torch.cat([*parts, w["model.view_seperator"][None]])}


def deepseekocr2(w: Weights) -> dict[str, np.ndarray]:
    values, images = tiled(64, 48, 6, CASES["deepseekocr2"]["picture"])
    config = DeepseekOcr2VisionEncoderConfig(
        hidden_size=N, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    )  # fmt: skip
    config._attn_implementation = "eager"
    first = sam(w, 16, 4)
    second = loaded(DeepseekOcr2VisionEncoder(config), below(w, "model.qwen2_model.model.model."))
    rows = []
    for image in images:
        x = first(image[None]).last_hidden_state.flatten(2)[0].T
        queries = w[f"model.qwen2_model.query_{768 if len(x) == 9 else 1024}.weight"]
        x = second(torch.cat([x, queries])[None], num_patches=len(x)).last_hidden_state[0, len(x) :]
        rows.append(linear(w, "model.projector.layers", x))
    return values | {"rows": torch.cat([*rows, w["model.view_seperator"][None]])}


MOBILENET = [
    ["er_r1_k3_s2_e2_c16", "er_r1_k3_s1_e2_c16"],
    ["uir_r1_a3_k5_s2_e2_c16", "uir_r1_a5_k0_s1_e2_c16"],
    [
        "uir_r1_a5_k5_s2_e2_c24", "uir_r1_a5_k0_s1_e2_c24", "uir_r1_a0_k0_s1_e1_c24", "mqa_r1_k3_h2_v2_s1_d8_c24",
        "uir_r1_a0_k0_s1_e2_c24",
    ],
    ["uir_r1_a5_k5_s2_e2_c32", "mqa_r1_k3_h2_s1_d16_c32", "uir_r1_a0_k0_s1_e2_c32"],
]  # fmt: skip


def gemma3n(w: Weights) -> dict[str, np.ndarray]:
    """Compute in float64: in float32 torch's own rows are 1.5e-6 away, after 24 blocks with norms."""
    w = {name: x.double() for name, x in w.items()}
    encoder = MobileNetV5Encoder(
        block_args=decode_arch_def(MOBILENET), stem_size=8, pad_type="same", norm_layer=RmsNorm2d,
        layer_scale_init_value=1e-5, msfa_output_resolution=4,
    ).double()  # fmt: skip
    encoder.load_state_dict(below(w, "model.vision_tower.timm_model."))
    pixels = torch.tensor(resized((128, 128), Image.Resampling.BILINEAR)).permute(2, 0, 1)[None].double() / 255
    x = encoder.eval()(pixels).flatten(2)[0].T * 2048**0.5
    p = "model.embed_vision."
    end = rms(w[f"{p}hard_embedding_norm.weight"], w[f"{p}embedding.weight"][:1])  # of the image's end
    x = torch.cat([rms(w[f"{p}soft_embedding_norm.weight"], x), end])
    return {"rows": rms(torch.ones(TEXT), F.linear(x, w[f"{p}embedding_projection.weight"])).float()}


def minimax_m3(w: Weights) -> dict[str, np.ndarray]:
    config = MiniMaxM3VLVisionConfig(**(SMALL | {"num_hidden_layers": 3}), image_size=112, patch_size=8)
    config._attn_implementation = "eager"
    own = below(w, "vision_tower.vision_model.")
    own = {
        name.replace("encoder.", "").replace("embeddings.patch_embedding", "embeddings.proj"): x
        for name, x in own.items()
    }
    model = loaded(MiniMaxM3VLVisionModel(config), own)
    settings = CASES["minimax_m3"]["processor"]
    processor = MiniMaxM3VLImageProcessor(
        patch_size=8, size={"shortest_edge": 4 * 256, "longest_edge": 576 * 256}, **settings
    )
    TorchvisionBackend.resize = lambda self, image, size, resample, **_: by_pillow(image, size, resample)
    values, made = patches_of(processor, settings["image_mean"], settings["image_std"], 2, "pt")
    x = model(made["pixel_values"], made["image_grid_thw"]).last_hidden_state[0]
    x = linear(w, "multi_modal_projector.linear_2", F.gelu(linear(w, "multi_modal_projector.linear_1", x)))
    x = x.reshape(len(x) // 4, -1)
    rows = linear(w, "patch_merge_mlp.linear_2", F.gelu(linear(w, "patch_merge_mlp.linear_1", x)))
    return values | {"rows": rows}


def glm5v(w: Weights) -> dict[str, np.ndarray]:
    values = CASES["glm5v"]["config"]["vision_config"]
    config = Glm5NextVisionConfig(**{key: value for key, value in values.items() if key != "text_config"})
    config._attn_implementation = "eager"
    model = loaded(Glm5NextVisionModel(config), below(w, "visual."))
    settings = CASES["glm5v"]["processor"]
    pixels, made = patches_of(
        Glm5NextImageProcessorPil(**settings), settings["image_mean"], settings["image_std"], 2, "np"
    )
    out = model(torch.tensor(np.array(made["pixel_values"])).float(), torch.tensor(np.array(made["image_grid_thw"])))
    return pixels | {"rows": out.pooler_output}


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention ``[n, heads * d]`` of ``[n, heads, d]``."""
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


def phi4(w: Weights) -> dict[str, np.ndarray]:
    p = "model.vision_tower.vision_tower.vision_model."
    own = below(w, p)
    config = Siglip2VisionConfig(**(SMALL | {"num_hidden_layers": 3}), patch_size=8, num_patches=36)
    config.vision_use_head = False
    model = loaded(Siglip2VisionModel(config), own)
    rows, columns = 5, 10  # 40 x 80 pixels, the nearest size with at most 64 patches
    flat = cells(resized((8 * rows, 8 * columns), Image.Resampling.BILINEAR), 1, 8, [0.5] * 3, [0.5] * 3)
    flat = flat.permute(0, 2, 3, 1).flatten(1)[None]
    shape = torch.tensor([[rows, columns]])
    out = model(flat, torch.ones(1, rows * columns, dtype=torch.int32), shape, output_hidden_states=True)
    x = out.hidden_states[-2][0]
    return {"rows": linear(w, "model.mm_projector.2", F.gelu(linear(w, "model.mm_projector.0", x)))}


def ling3vl(w: Weights) -> dict[str, np.ndarray]:
    config = Qwen3VLVisionConfig(
        hidden_size=N, depth=2, num_heads=2, patch_size=8, intermediate_size=48, num_position_embeddings=36,
        deepstack_visual_indexes=[], out_hidden_size=64,
    )  # fmt: skip
    config._attn_implementation = "eager"
    own = below(w, "model.visual.")
    model = Qwen3VLVisionModel(config)
    model.load_state_dict({**own, "patch_embed.proj.bias": torch.zeros(N)}, strict=False)
    flat = cells(resized((48, 96), Image.Resampling.BICUBIC), 2, 8, [0.5] * 3, [0.5] * 3)
    flat = flat[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1)
    x = model.eval()(flat, torch.tensor([[1, 6, 12]])).last_hidden_state
    x = norm(w, "model.visual.merger.norm", x).reshape(-1, 4 * N)
    return {"rows": linear(w, "linear_proj.2", F.gelu(linear(w, "linear_proj.0", x)))}


def as_map(x: Tensor, side: int) -> Tensor:
    return x.T.reshape(1, -1, side, side)


def yasa2(w: Weights) -> dict[str, np.ndarray]:
    config = ConvNextV2Config(
        hidden_sizes=list(YASA_WIDTHS), depths=list(YASA_DEPTHS), num_stages=len(YASA_DEPTHS), image_size=128
    )
    names = {
        "v.patch_embd": "embeddings.patch_embeddings", "v.patch_ln": "embeddings.layernorm", "v.stage.":
        "encoder.stages.", ".down.ln": ".downsampling_layer.0", ".down.conv": ".downsampling_layer.1", ".blk.":
        ".layers.", ".dw.": ".dwconv.", ".ln.": ".layernorm.", ".pw1.": ".pwconv1.", ".pw2.": ".pwconv2.",
    }  # fmt: skip
    values = {}
    for name, x in w.items():
        if name.startswith("v.") and name != "v.vision_pos_embed":
            values[functools.reduce(lambda text, pair: text.replace(*pair), names.items(), name)] = (
                x[None, None, None] if ".grn." in name else x
            )
    model = ConvNextV2Model(config)
    missing, unexpected = model.load_state_dict(values, strict=False)
    assert not unexpected, unexpected
    assert {name.rpartition(".")[0] for name in missing} == {"layernorm"}, missing
    pixels = resized((128, 128), Image.Resampling.BICUBIC).astype(np.float32) / 255
    pixels = (pixels - KEYS["image_mean"]) / KEYS["image_std"]
    x = model.eval()(torch.tensor(pixels).float().permute(2, 0, 1)[None]).last_hidden_state[0]
    x = x.flatten(1).T + w["v.vision_pos_embed"]
    x = F.adaptive_avg_pool2d(as_map(x, 16), 8).flatten(2)[0].T
    return {"rows": linear(w, "mm.2", F.gelu(linear(w, "mm.0", x)))}


def theirs(sources: Path, kind: str) -> dict:
    """Return metadata and tensors of the projector that llama.cpp's converter writes."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder) / kind, kind)
        return projector(sources, Path(folder) / kind, ["-O", str(sources / "convert_hf_to_gguf.py")])


if __name__ == "__main__":
    sources, *names = sys.argv[1:]
    stored = dict(np.load(FIXTURE)) if FIXTURE.exists() else {}
    for name in names or FILES:
        if formula := globals().get(name):
            shapes = FILES[name]["shapes"]
            with torch.no_grad():
                made = formula({key: torch.tensor(weights(key, shape)) for key, shape in shapes.items()})
            stored = {key: value for key, value in stored.items() if not key.startswith(f"{name}.")}
            stored |= {f"{name}.{key}": np.asarray(value) for key, value in made.items()}
        if CASES.get(name, {}).get("theirs"):  # None: MiMo's sound is missing, Nemotron's size is another
            CASES[name]["theirs"] = theirs(Path(sources), name)
        write_cases(FIXTURE.with_name("cases.json"), FILES)
        np.savez_compressed(FIXTURE, **stored)
