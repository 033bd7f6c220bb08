"""Random pictures of coloured shapes, drawn by Pillow."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "ring", "moon")
TURNS = {"square": 15, "triangle": 180, "star": 180, "heart": 25, "cross": 15, "moon": 180}
"""Largest angle in degrees by which a shape is turned; others look the same."""

COLOURS = {
    "red": ((-6, 5), (0.85, 1.0), (0.75, 1.0)),
    "orange": ((24, 34), (0.85, 1.0), (0.95, 1.0)),
    "yellow": ((52, 60), (0.7, 1.0), (0.93, 1.0)),
    "green": ((105, 140), (0.6, 1.0), (0.45, 0.8)),
    "blue": ((205, 238), (0.7, 1.0), (0.65, 1.0)),
    "purple": ((272, 292), (0.6, 1.0), (0.45, 0.75)),
    "pink": ((325, 345), (0.3, 0.55), (0.97, 1.0)),
    "brown": ((18, 30), (0.6, 0.85), (0.33, 0.5)),
    "black": ((0, 360), (0.0, 0.3), (0.0, 0.1)),
    "white": ((0, 360), (0.0, 0.02), (0.97, 1.0)),
    "grey": ((0, 360), (0.0, 0.05), (0.45, 0.68)),
}
"""Ranges of hue in degrees, saturation and value."""

MOST_THINGS, MOST_GROUPS = 6, 3
_RADII = ((0.12, 0.3), (0.12, 0.3), (0.11, 0.2), (0.11, 0.2), (0.1, 0.15), (0.1, 0.15))  # by number of things
_GAP = 0.02
RGB = tuple[int, int, int]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Thing:
    """A shape: centre in parts of width and height, radius in parts of the shorter side, turn in degrees."""

    shape: str
    colour: str
    x: float
    y: float
    radius: float
    turn: float


@dataclass(frozen=True)
class Scene:
    width: int
    height: int
    background: str
    things: tuple[Thing, ...]

    def groups(self) -> list[tuple[int, str, str]]:
        """Return number, colour and shape of equal things, by shape and colour in the order of the tables."""
        kinds = [(thing.shape, thing.colour) for thing in self.things]
        order = sorted(set(kinds), key=lambda kind: (SHAPES.index(kind[0]), list(COLOURS).index(kind[1])))
        return [(kinds.count(kind), kind[1], kind[0]) for kind in order]

    def count(self, shape: str = "", colour: str = "") -> int:
        """Return the number of things, of a shape or a colour if they are given."""
        return sum(
            thing.shape in (shape or thing.shape,) and thing.colour in (colour or thing.colour,)
            for thing in self.things
        )


def scenes(seed: int, shard: int) -> Iterator[Scene]:
    """Yield the scenes of a shard without end."""
    random = Random(f"{seed}/{shard}")
    while True:
        yield random_scene(random)


def random_scene(random: Random) -> Scene:
    width, height = _size(random)
    n = 0 if random.random() < 0.01 else random.randint(1, MOST_THINGS)
    n_groups = min(n, random.randint(1, MOST_GROUPS))
    kinds: list[tuple[str, str]] = []
    while len(kinds) < n_groups:
        kind = (random.choice(SHAPES), random.choice(list(COLOURS)))
        if kinds and random.random() < 0.25:  # more often the same shape in another colour, or the reverse
            kind = random.choice([(kinds[0][0], kind[1]), (kind[0], kinds[0][1])])
        if kind not in kinds:
            kinds.append(kind)
    of_each = kinds + [random.choice(kinds) for _ in range(n - n_groups)]
    random.shuffle(of_each)
    free = [colour for colour in COLOURS if colour not in {colour for _, colour in kinds}]
    background = "white" if "white" in free and random.random() < 0.4 else random.choice(free)
    return Scene(width, height, background, tuple(_placed(random, of_each, width, height)))


def _size(random: Random) -> tuple[int, int]:
    side = random.randint(96, 288)
    if random.random() < 0.5:
        return side, side
    other = max(64, round(side * random.uniform(0.67, 1.0)))
    return (side, other) if random.random() < 0.5 else (other, side)


def _placed(random: Random, kinds: list[tuple[str, str]], width: int, height: int) -> list[Thing]:
    """Return things that do not touch each other or the border."""
    shorter = min(width, height)
    shrink = 1.0
    while True:
        things: list[Thing] = []
        for shape, colour in kinds:
            for _ in range(40):
                radius = random.uniform(*_RADII[len(kinds) - 1]) * shrink
                across, down = (radius + _GAP) * shorter / width, (radius + _GAP) * shorter / height
                if max(across, down) >= 0.5:
                    continue
                x, y = random.uniform(across, 1 - across), random.uniform(down, 1 - down)
                if all(_distance(x, y, other, width, height) > radius + other.radius + _GAP for other in things):
                    turn = random.uniform(-1, 1) * TURNS.get(shape, 0)
                    things.append(Thing(shape, colour, x, y, radius, turn))
                    break
            else:
                break
        if len(things) == len(kinds):
            return things
        shrink = max(0.8, shrink - 0.05)


def _distance(x: float, y: float, thing: Thing, width: int, height: int) -> float:
    return math.hypot((x - thing.x) * width, (y - thing.y) * height) / min(width, height)


def draw(scene: Scene, random: Random) -> Image.Image:
    """Return the picture; half of the pictures have smooth edges."""
    scale = random.choice((1, 2))
    background = shade(scene.background, random)
    image = Image.new("RGB", (scene.width * scale, scene.height * scale), background)
    brush = ImageDraw.Draw(image)
    same = random.random() < 0.7  # things of a colour have the same shade
    shades = {colour: shade(colour, random) for colour in COLOURS}
    for thing in scene.things:
        colour = shades[thing.colour] if same else shade(thing.colour, random)
        radius = thing.radius * min(image.size)
        x, y = thing.x * image.width, thing.y * image.height
        box = (x - radius, y - radius, x + radius, y + radius)
        if thing.shape == "circle":
            brush.ellipse(box, fill=colour)
        elif thing.shape == "ring":
            brush.ellipse(box, outline=colour, width=max(2, round(radius * 0.38)))
        else:
            turn = math.radians(thing.turn)
            cos, sin = math.cos(turn) * radius, math.sin(turn) * radius
            brush.polygon(
                [(x + a * cos - b * sin, y + a * sin + b * cos) for a, b in OUTLINES[thing.shape]], fill=colour
            )
    return image if scale == 1 else image.reduce(scale)


def shade(colour: str, random: Random) -> RGB:
    hue, saturation, value = (random.uniform(*limits) for limits in COLOURS[colour])
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue / 360 % 1, saturation, value))
    return red, green, blue


def _polar(radii: list[float], start: float) -> Points:
    angles = [math.radians(start + 360 * i / len(radii)) for i in range(len(radii))]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for radius, angle in zip(radii, angles, strict=True)]


def _heart() -> Points:
    """The curve of sines (Weisstein, Heart Curve, equation 5), scaled to radius 1."""
    points = []
    for i in range(36):
        t = math.tau * i / 36
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((math.sin(t) ** 3 * 16 / 17, -(y + 2.5) / 17))
    return points


def _moon() -> Points:
    outer = [math.radians(angle) for angle in range(50, 311, 10)]
    inner = [math.radians(angle) for angle in range(290, 69, -10)]
    shift = math.cos(outer[0]) - 0.8 * math.cos(inner[-1])
    return [(math.cos(a), math.sin(a)) for a in outer] + [(0.8 * math.cos(a) + shift, 0.8 * math.sin(a)) for a in inner]


OUTLINES: dict[str, Points] = {
    "square": _polar([1.0] * 4, 45),
    "triangle": _polar([1.0] * 3, -90),
    "star": _polar([1.0, 0.45] * 5, -90),
    "heart": _heart(),
    "cross": [(a * x, b * y) for a, b, ps in (
        (1, 1, ((0.3, 0.95), (0.3, 0.3), (0.95, 0.3))), (1, -1, ((0.95, 0.3), (0.3, 0.3), (0.3, 0.95))),
        (-1, -1, ((0.3, 0.95), (0.3, 0.3), (0.95, 0.3))), (-1, 1, ((0.95, 0.3), (0.3, 0.3), (0.3, 0.95))),
    ) for x, y in ps],
    "moon": _moon(),
}  # fmt: skip
"""Outlines of shapes around (0, 0), y downwards, within radius 1."""


def fitted(image: Image.Image, size: int) -> Image.Image:
    """Return the square that Idefics3's preprocessing makes of an image if one tile is the largest size.

    The longer side is scaled to ``size`` and the other one by the ratio, to an even number; then both to ``size``.
    """
    ratio = image.width / image.height
    other = int(size / ratio) if ratio >= 1 else int(size * ratio)
    other += other % 2
    first = (size, other) if ratio >= 1 else (other, size)
    for to in (first, (size, size)):
        if image.size != to:
            image = image.resize(to, Image.Resampling.LANCZOS)
    return image


def covered(scene: Scene, n: int) -> list[int]:
    """Return for each cell of an ``n * n`` grid, row by row, the kind of thing at its centre: 0 for none."""
    cells = [0] * (n * n)
    shorter = min(scene.width, scene.height)
    for thing in scene.things:
        kind = 1 + SHAPES.index(thing.shape) * len(COLOURS) + list(COLOURS).index(thing.colour)
        across, down = (0.9 * thing.radius * shorter / side for side in (scene.width, scene.height))
        for row in range(max(0, int((thing.y - down) * n)), min(n, int((thing.y + down) * n) + 1)):
            for column in range(max(0, int((thing.x - across) * n)), min(n, int((thing.x + across) * n) + 1)):
                x, y = ((column + 0.5) / n - thing.x) / across, ((row + 0.5) / n - thing.y) / down
                if x * x + y * y <= 1:
                    cells[row * n + column] = kind
    return cells


N_KINDS = 1 + len(SHAPES) * len(COLOURS)
