"""Write the products of shaders/persistent.comp as straight-line code.

    python tools/straight_line.py

Those of single tokens (straight_units.py) are persistent_units.glsl, those of steps with several (token_units.py)
persistent_token_units.glsl.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from pumice_vulkan.persistent.families import FAMILIES  # noqa: E402
from tools.rolled_quads import Quads  # noqa: E402
from tools.straight_units import Units  # noqa: E402
from tools.token_units import TokenQuads, TokenUnits  # noqa: E402

TARGETS = {several: ROOT / "shaders" / f"persistent_{'token_' * several}units.glsl" for several in (False, True)}


def text(several: bool = False) -> str:
    """Return a file: a part for each family without experts, whose products are written by hand.

    ``several``: that of steps with several tokens.
    """
    straight, rolled = (TokenUnits, TokenQuads) if several else (Units, Quads)
    dense = {
        name: shape.of_rows(2 if several else 1)
        for name, shape in FAMILIES.items()
        if not shape.experts and not (several and shape.head_norms)
    }
    units = {name: straight(shape) if shape.found_by == "places" else rolled(shape) for name, shape in dense.items()}
    parts = [f"#ifdef {name}\n{unit.text}#endif\n" for name, unit in units.items()]
    return "\n".join(parts)


if __name__ == "__main__":
    for several, target in TARGETS.items():
        target.write_text(text(several))
    sys.exit(0)
