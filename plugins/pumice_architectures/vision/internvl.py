"""InternVL 2 to 3.5 (Chen et al. 2024, arXiv:2404.16821): tiles by the image's ratio, and the whole."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.plugin import GraphBuilder, HParams, Tensor
from pumice.plugin.nn import blocks
from pumice.plugin.unstable import Frames, ImagePiece, VideoForm, VideoPlan
from pumice_architectures.vision.pixels import Pixels, check_ratio, check_sides, patches, resize, tile_grid, tiles
from pumice_architectures.vision.video import spread
from pumice_architectures.vision.vit import ViT, class_inputs, corners, merged

MOST_TILES = 64
MOST_FRAMES = 8  # of a video


class InternVL(ViT):
    """A class token in front, layer scales, and squares of ``merge * merge`` patches as rows."""

    sees_videos = True
    known_activation = "gelu_erf"

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.merge = hparams.get_int("projector.scale_factor", 2)
        if self.merge < 1 or self.side % self.merge:
            raise hparams.wrong("projector.scale_factor", f"is {self.merge}, for {self.side} patches a side")
        self.fewest, self.most = (hparams.get_int(f"preproc_{key}_tiles", n) for key, n in (("min", 1), ("max", 12)))
        if not 0 < self.fewest <= self.most <= MOST_TILES:
            raise hparams.wrong("preproc_max_tiles", f"is {self.most}, expected {self.fewest} to {MOST_TILES}")
        self.n_rows = self.side**2 + 1

    def prepare(self, pixels: Pixels) -> list[str | ImagePiece]:
        check_ratio(pixels)
        size = self.image_size
        height, width = pixels.shape[:2]
        columns, rows = tile_grid(height, width, size, self.fewest, self.most)
        cells = tiles(resize(pixels, columns * size, rows * size, "bicubic"), size)
        if len(cells) > 1:
            cells.append(resize(pixels, size, size, "bicubic"))
        return ["<img>", *(self._inputs(cell) for cell in cells), "</img>"]

    def plan_video(self, video: VideoForm) -> VideoPlan:
        check_sides(video.height, video.width)
        frames = spread(video.n_frames, min(MOST_FRAMES, video.n_frames), shift=0.5)
        return VideoPlan(frames, [(self.image_size, self.image_size)])

    def prepare_video(self, video: VideoForm, frames: Frames) -> Iterable[str | ImagePiece]:
        for i, frame in enumerate(frames):
            yield from (f"{'' if i == 0 else chr(10)}Frame{i + 1}: <img>", self._inputs(frame), "</img>")

    def _inputs(self, tile: Pixels) -> ImagePiece:
        rows = patches(tile, self.patch_size, self.mean, self.std)
        squares = {name: ids + 1 for name, ids in corners((self.side, self.side), self.merge).items()}
        return ImagePiece({**class_inputs(rows), **squares})

    def build(self, g: GraphBuilder) -> Tensor:
        x = self.blocks(g, self.with_class(g, self.patch_embeddings(g)) + self.positions(g))
        if g.find_weight("v.post_ln.weight") is not None:
            x = self.norm(g, x, "v.post_ln")
        x = blocks.layer_norm(g, merged(g, x, self.merge, self.n_rows), "mm.model.mlp.0", 1e-5)
        return self.perceptron(g, x, "mm.model.mlp.1", "mm.model.mlp.3")
