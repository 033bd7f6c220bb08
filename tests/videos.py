"""Videos by formulas, and the lengths and sizes whose frames are compared with transformers'."""

import io
from pathlib import Path

import numpy as np

from vision_files import picture

FIXTURE = Path(__file__).parent / "fixtures" / "videos.npz"
SIZE = (90, 50)  # of frames by formula
SAMPLES = [(50, 25.0), (75, 29.97), (2000, 24.0)]  # whose texts are compared
SIZES = [(n, h, w) for n in (2, 4, 5, 20) for h, w in ((50, 90), (11, 20), (130, 201), (16, 16), (300, 40))]
MODELS = {  # frames and rate of the videos that models see
    "qwen2vl": (50, 25.0),
    "qwen25vl": (50, 10.0),
    "qwen3vl": (75, 29.97),
    "glm4v": (50, 25.0),
    "gemma4": (3, 1.0),
    "internvl": (50, 25.0),
    "minicpmv46": (50, 25.0),
    "smolvlm": (75, 25.0),
}


def frames(n: int) -> np.ndarray:
    """Return frames ``[n, height, width, 3]``, each moved by some pixels."""
    still = picture(*SIZE)
    return np.stack([np.roll(still, 3 * i, axis=1) for i in range(n)])


def video_file(
    n: int = 50, rate: int = 25, size: tuple[int, int] = (64, 48), codec: str = "mpeg4", format: str = "mp4"
):
    """Return the bytes of a video whose red grows by 4 with each frame."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=format) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = *size, "yuv420p", 12
        for i in range(n):
            pixels = np.full((size[1], size[0], 3), (i * 4 % 256, 100, 50), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode())
    return file.getvalue()
