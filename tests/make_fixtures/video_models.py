"""Make tests/fixtures/videos.json and videos.npz: what transformers' video processors and tiny models make of videos.

    python tests/make_fixtures/video_models.py

It needs torch, torchvision, transformers and num2words. Stored are the frames that each processor samples from videos
of many lengths, sizes of frames, texts with times, pixels, rows, and the logits of the tokens after a video.
"""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from torchvision.transforms.v2.functional import InterpolationMode
from transformers.models.gemma4.processing_gemma4 import Gemma4Processor
from transformers.models.gemma4.video_processing_gemma4 import Gemma4VideoProcessor
from transformers.models.glm4v.processing_glm4v import Glm4vProcessor
from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.minicpmv4_6.processing_minicpmv4_6 import MiniCPMV4_6Processor
from transformers.models.minicpmv4_6.video_processing_minicpmv4_6 import MiniCPMV4_6VideoProcessor
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.models.smolvlm.processing_smolvlm import SmolVLMProcessor
from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor
from transformers.video_utils import VideoMetadata

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pillow_resizing import by_pillow

import vision_models as fixture_cases
from videos import FIXTURE, LENGTHS, MODELS, SAMPLES, SIZES, frames

_spec = importlib.util.spec_from_file_location("vision_fixtures", Path(__file__).with_name("vision_models.py"))
vision_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(vision_fixtures)
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
N_GENERATED, VIDEO = 4, 415


def sizes_of(kind):
    return fixture_cases.CASES[kind]["video_processor"]["size"]


PROCESSORS = {
    "qwen2vl": lambda: Qwen2VLVideoProcessor(size=sizes_of("qwen2vl"), patch_size=8, fps=2, do_sample_frames=True),
    "qwen25vl": lambda: Qwen2VLVideoProcessor(size=sizes_of("qwen25vl"), patch_size=8, fps=2, do_sample_frames=True),
    "qwen3vl": lambda: Qwen3VLVideoProcessor(size=sizes_of("qwen3vl"), patch_size=8, **HALF),
    "glm4v": lambda: Glm4vVideoProcessor(size=sizes_of("glm4v"), patch_size=8),
    "gemma4": lambda: Gemma4VideoProcessor(patch_size=4),
    "internvl": lambda: InternVLVideoProcessor(size={"height": 32, "width": 32}, num_frames=8, do_sample_frames=True),
    "minicpmv46": lambda: MiniCPMV4_6VideoProcessor(
        patch_size=8, scale_resolution=96, max_slice_nums=1, do_sample_frames=True, **HALF
    ),
    "smolvlm": lambda: SmolVLMVideoProcessor(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, fps=1, num_frames=64, do_sample_frames=True
    ),
}


def described(n, rate, height=1, width=1):
    return VideoMetadata(total_num_frames=n, fps=rate, duration=n / rate, height=height, width=width)


def sampled(processor, kind, n, rate):
    """Return the frames that a processor samples; None where it divides by zero or has too few."""
    few = {"gemma4": 32, "internvl": 8}.get(kind, 0)
    if few > n:
        processor.num_frames = n
    try:
        return [int(i) for i in processor.sample_frames(described(n, rate))]
    except (ValueError, ZeroDivisionError):
        return None
    finally:
        processor.num_frames = few or processor.num_frames


def size_of(processor, kind, n, height, width):
    """Return the size of frames."""
    made = []
    processor.resize_by = made
    video = torch.zeros(1, n, 3, height, width, dtype=torch.uint8)
    if kind == "minicpmv46":
        return list(processor.find_best_resize((height, width), 96, 8, allow_upscale=True))
    if kind == "gemma4":
        made = processor.aspect_ratio_preserving_resize(video[0], 4, 70 * 9, 3, InterpolationMode.BICUBIC)
        return list(made.shape[-2:])
    factor = {"factor": 16, "temporal_factor": 2}
    with_size = processor.resize(video, processor.size, resample=3, **factor)
    return list(with_size.shape[-2:])


def text_of(processor, kind, n, rate):
    """Return the text of a video, in which a frame's rows are one mark each."""
    token = "#"
    meta = described(n, rate)
    meta.frames_indices = sampled(processor, kind, n, rate)
    count = len(meta.frames_indices)
    pairs = -(-count // 2)
    grid = torch.tensor([[pairs, 2, 2]])
    pixels = torch.zeros(1, count, 3, 4, 4)
    inputs = {"video_grid_thw": grid, "video_metadata": [meta], "num_soft_tokens_per_video": [1]}
    inputs |= {"pixel_values_videos": pixels, "pixel_values": pixels}
    owner = SimpleNamespace(
        video_processor=processor,
        image_token=token,
        video_token=token,
        image_seq_len=1,
        image_seq_length=1,
        vision_start_token="<|vision_start|>",
        vision_end_token="<|vision_end|>",
        start_image_token="<img>",
        end_image_token="</img>",
        boi_token="<|image>",
        eoi_token="<image|>",
        fake_image_token="<fake_token_around_image>",
        global_image_token="<global-img>",
        image_start_token="<image>",
        image_end_token="</image>",
        video_slice_mode=True,
    )
    if kind == "minicpmv46":
        whole, counts = np.full((count, 2), 4), np.array([count])
        inputs = {"target_sizes_videos": whole, "num_frames_per_video": counts, "grids_videos": 0 * whole}
        return MiniCPMV4_6Processor.replace_video_token(owner, inputs, 0, video_token_divisor=16)
    of = {"qwen3vl": Qwen3VLProcessor, "glm4v": Glm4vProcessor, "gemma4": Gemma4Processor}
    of |= {"internvl": InternVLProcessor, "smolvlm": SmolVLMProcessor, "qwen25vl": Qwen2_5_VLProcessor}
    owner_class = of.get(kind, Qwen2_5_VLProcessor)
    for name in ("_calculate_timestamps", "replace_frame_token_id"):
        if hasattr(owner_class, name):
            setattr(owner, name, getattr(owner_class, name).__get__(owner))
    return re.sub(f"{token}+", token, owner_class.replace_video_token(owner, inputs, 0))


@torch.no_grad()
def made_of(kind, processor):
    """Return pixels, rows and logits after the video of SIZES' first size."""
    processor.resize = by_pillow_frames(processor, kind)
    if kind == "gemma4":
        processor.aspect_ratio_preserving_resize = gemma_by_pillow
    n, rate = MODELS[kind]
    if kind == "gemma4":
        processor.num_frames = n
    video = torch.from_numpy(frames(n)).permute(0, 3, 1, 2)
    given = processor(videos=[video], video_metadata=[described(n, rate)], return_tensors="pt")
    pixels = given["pixel_values_videos"] if "pixel_values_videos" in given else given["pixel_values"]
    values = {"pixels": np.array(pixels, np.float32)}
    if kind == "minicpmv46":  # patches side by side
        values = {"pixels": values["pixels"].reshape(3, 8, -1, 8).transpose(2, 0, 1, 3).reshape(-1, 192)}
    if kind in ("internvl", "minicpmv46", "smolvlm"):
        return values
    model, _ = vision_fixtures.make_model(kind, fixture_cases.CASES[kind])
    model.config.video_token_id = VIDEO
    return values | with_texts(kind, model, given, processor, n, rate)


def gemma_by_pillow(video, patch_size, max_patches, pooling_kernel_size, resample):
    from transformers.models.gemma4.video_processing_gemma4 import get_aspect_ratio_preserving_size

    sides = get_aspect_ratio_preserving_size(*video.shape[-2:], patch_size, max_patches, pooling_kernel_size)
    return by_pillow(video, SimpleNamespace(height=sides[0], width=sides[1]), 3)


def by_pillow_frames(processor, kind):
    """Return a method that resizes as the processor's, by Pillow."""
    base = transformers.video_processing_utils.BaseVideoProcessor
    theirs = type(processor).resize

    def resize(videos, size, resample=None, **more):
        inner = base.resize
        filter = processor.resample
        base.resize = lambda _, image, size, **__: torch.stack([by_pillow(video, size, filter) for video in image])
        try:
            if kind in ("internvl", "minicpmv46"):
                return base.resize(processor, videos, size)
            if kind == "smolvlm":
                return theirs(processor, videos, size, resample)
            return theirs(processor, videos, size, resample, **more)
        finally:
            base.resize = inner

    return resize


def with_texts(kind, model, given, processor, n, rate):
    pixels = given["pixel_values_videos"]
    if kind == "gemma4":
        more = {"video_position_ids": given["video_position_ids"]}
        more["num_frames_per_video"] = given.get("num_frames_per_video")
    else:
        more = {"video_grid_thw": given["video_grid_thw"]}
    made = model.model.get_video_features(pixels, **{key: it for key, it in more.items() if it is not None})
    rows = vision_fixtures.rows_of(made)
    count = len(sampled(processor, kind, n, rate))
    n_frames = count if kind == "gemma4" else -(-count // 2)
    each = len(rows) // n_frames
    apart = kind in ("qwen3vl", "glm4v", "gemma4")
    image = [fixture_cases.IMAGE if kind == "glm4v" else VIDEO] * each
    video = [
        token
        for i in range(n_frames)
        for token in (*([20 + i, 413] if apart else []), *image, *([414] if apart else []))
    ]
    if kind == "glm4v":
        video = [416, *video, 417]
    before, after = ([(7 * i + start) % 300 for i in range(n)] for start, n in ((3, 5), (5, 6)))
    ids = [*before, *video, *after]
    values, logits = {"rows": rows, "ids": np.array(ids, np.int32)}, []
    if kind == "qwen25vl":
        more["second_per_grid_ts"] = [2 / (count / n * rate)]
    for _ in range(N_GENERATED):
        kinds = [2 if token in (VIDEO, fixture_cases.IMAGE) else 0 for token in ids]
        if kind == "qwen25vl":
            more["position_ids"] = following(model, ids, kinds, more)
        out = model(
            input_ids=torch.tensor([ids]),
            use_cache=False,
            pixel_values_videos=pixels,
            mm_token_type_ids=torch.tensor([kinds]),
            **more,
        ).logits[0, -1]
        logits.append(torch.log_softmax(out.float(), -1).numpy())
        ids = [*ids, int(out.argmax())]
    return values | {"logprobs": np.stack(logits)}


def following(model, ids, kinds, more):
    """Return positions by which text continues behind the largest one, as in the authors' code.

    This version of transformers continues behind the rows and columns, at places that the video has in time.
    """
    given = {"video_grid_thw": more["video_grid_thw"], "second_per_grid_ts": more["second_per_grid_ts"]}
    positions, _ = model.model.get_rope_index(
        torch.tensor([ids]), mm_token_type_ids=torch.tensor([kinds]), image_grid_thw=None, **given
    )
    end = len(kinds) - kinds[::-1].index(2)
    positions[..., end:] = positions[..., :end].max() + 1 + torch.arange(len(ids) - end)
    return positions


if __name__ == "__main__":
    told, values = {}, {}
    if sys.argv[1:]:
        told, values = json.loads(FIXTURE.with_suffix(".json").read_text()), dict(np.load(FIXTURE))
    for kind in sys.argv[1:] or PROCESSORS:
        processor = PROCESSORS[kind]()
        told[kind] = {
            "frames": {f"{n} {rate}": sampled(processor, kind, n, rate) for n, rate in LENGTHS},
            "texts": {f"{n} {rate}": text_of(processor, kind, n, rate) for n, rate in SAMPLES},
        }
        if kind not in ("internvl", "smolvlm"):
            told[kind]["sizes"] = {f"{n} {h} {w}": size_of(processor, kind, n, h, w) for n, h, w in SIZES}
        values |= {f"{kind}.{key}": value for key, value in made_of(kind, PROCESSORS[kind]()).items()}
    FIXTURE.with_suffix(".json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
    np.savez_compressed(FIXTURE, **values)
