"""Products of shaders/persistent.comp, which tools/compile_shaders.py includes where it compiles the shader.

    python tools/straight_line.py

prints them: those of single tokens (straight_units.py, rolled_quads.py, open_loops.py), then those of steps with
several (token_units.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pumice_vulkan.persistent.families import FAMILIES, OPEN_FAMILIES
from tools.open_loops import Loops
from tools.rolled_quads import Quads
from tools.straight_units import Units
from tools.token_units import TokenQuads, TokenUnits


def texts() -> dict[str, str]:
    """Return GLSL by the name by which shaders include it."""
    units = {f"persistent_{'token_' * several}units.glsl": text(several) for several in (False, True)}
    return {**units, "persistent_open_constants.glsl": constants()}


def constants() -> str:
    """Return the specialization constants of open families, whose values are those of an example."""
    lines = []
    for number, (name, value) in enumerate(next(iter(OPEN_FAMILIES.values())).numbers.items()):
        kind, literal = ("bool", str(value).lower()) if isinstance(value, bool) else ("uint", f"{value}u")
        lines.append(f"layout(constant_id = {number}) const {kind} {name} = {literal};\n")
    return "".join(lines)


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
    units: dict[str, Units | Quads | Loops] = {
        name: straight(shape) if shape.found_by == "places" else rolled(shape) for name, shape in dense.items()
    }
    units |= {} if several else {name: Loops(shape) for name, shape in OPEN_FAMILIES.items()}
    parts = [f"#ifdef {name}\n{unit.text}#endif\n" for name, unit in units.items()]
    return "\n".join(parts)


if __name__ == "__main__":
    print(*texts().values(), sep="\n", end="")
