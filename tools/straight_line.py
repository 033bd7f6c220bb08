"""Products of shaders/persistent.comp, which tools/compile_shaders.py includes where it compiles the shader.

    python tools/straight_line.py

prints them: those of single tokens (straight_units.py, rolled_quads.py), then those of steps with several
(token_units.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pumice_vulkan.persistent.families import FAMILIES
from tools.rolled_quads import Quads
from tools.straight_units import Units
from tools.token_units import TokenQuads, TokenUnits


def texts() -> dict[str, str]:
    """Return GLSL by the name by which shaders include it."""
    return {f"persistent_{'token_' * several}units.glsl": text(several) for several in (False, True)}


def text(several: bool = False) -> str:
    """Return a part for each family without experts, whose products are written by hand.

    ``several``: the products of steps with several tokens.
    """
    straight, rolled = (TokenUnits, TokenQuads) if several else (Units, Quads)
    dense = {
        name: shape.of_rows(2 if several else 1)
        for name, shape in FAMILIES.items()
        if not shape.experts and (shape.takes_several or not several)
    }
    units = {name: straight(shape) if shape.found_by == "places" else rolled(shape) for name, shape in dense.items()}
    parts = [f"#ifdef {name}\n{unit.text}#endif\n" for name, unit in units.items()]
    return "\n".join(parts)


if __name__ == "__main__":
    print(*texts().values(), sep="\n", end="")
