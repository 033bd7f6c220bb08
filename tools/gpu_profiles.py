"""Write the table of kernels by device to docs/gpu_profiles.md: ``python tools/gpu_profiles.py``.

The kernels are those that the backend chooses for a two-layer model on a device that exists on paper alone
(tools/paper_device.py): a profile of ``pumice_vulkan/profiles.py`` without its quirks.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import pumice  # noqa: E402
from gguf_files import tiny_llama, write_gguf  # noqa: E402
from pumice.gguf import GGMLType, GGUFFile  # noqa: E402
from pumice.plugin import Limits, MemoryPlan, Program, Segment  # noqa: E402
from pumice_vulkan import VulkanBackend  # noqa: E402
from pumice_vulkan.backend import NEEDED  # noqa: E402
from pumice_vulkan.buckets import Bucket  # noqa: E402
from pumice_vulkan.device import DeviceDescription  # noqa: E402
from pumice_vulkan.kernels import Kernels  # noqa: E402
from pumice_vulkan.lower.rule import Dispatch  # noqa: E402
from pumice_vulkan.memory import Arena, Weights  # noqa: E402
from pumice_vulkan.probe import SHAPE, has_lanes  # noqa: E402
from pumice_vulkan.profiles import PROFILES, Profile  # noqa: E402
from pumice_vulkan.program import DeviceProgram, Shared  # noqa: E402
from pumice_vulkan.quirks import QUIRKS, Quirk, without_quirks  # noqa: E402
from quantizers import quantize  # noqa: E402
from tools.paper_device import PaperDevice  # noqa: E402

TARGET = ROOT / "docs" / "gpu_profiles.md"
BEGIN, END = "<!-- written by tools/gpu_profiles.py -->\n", "<!-- end -->\n"
QUIRKS_BEGIN = "<!-- quirks, written by tools/gpu_profiles.py -->\n"
BUCKETS = {"1 token": Bucket(1, 1, True), "16 sequences": Bucket(16, 16, True), "prompt": Bucket(128, 1)}
PRODUCTS, ATTENTION = ("matvec", "matmul"), ("attention_",)
Compiled = tuple[Segment, MemoryPlan, Limits]


@contextmanager
def captured(path: Path) -> Iterator[Compiled]:
    """Load a model on a device of paper, and yield what the backend compiled; its weights are open in this context."""
    compiled: list[Compiled] = []
    compile = VulkanBackend.compile
    shared = shared_on(PaperDevice(PROFILES["hopper-h200"].described()))

    def noted(self: VulkanBackend, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        compiled.append((segment, plan, limits))
        return compile(self, segment, plan, limits)

    with (
        mock.patch.object(VulkanBackend, "compile", noted),
        mock.patch.object(VulkanBackend, "unavailable", return_value=None),
        mock.patch.object(VulkanBackend, "_open_one", return_value=shared),
        pumice.load(path, backend="vulkan", n_ctx=4096, n_batch=128, config={"n_parallel": 16}),
    ):
        yield compiled[0]


def shared_on(device: PaperDevice) -> Shared:
    """Return a model's state on a device, whose matrix units work if their shape is the one that kernels use."""
    cooperative = SHAPE in device.cooperative_matrices and "float16" in device.features
    int8 = "integer_dot_product_fast" in device.features
    lanes = cooperative and has_lanes(device.description)
    return Shared(device, Kernels(device), Weights(device), Arena(device), int8, cooperative, lanes=lanes)


@contextmanager
def program_on(description: DeviceDescription, compiled: Compiled) -> Iterator[tuple[Shared, DeviceProgram]]:
    with PaperDevice(description) as device:
        shared = shared_on(device)
        program = DeviceProgram(shared, *compiled)
        yield shared, program
        program.close()


def dispatches(description: DeviceDescription, compiled: Compiled) -> dict[str, list[Dispatch]]:
    """Return the dispatches of each bucket. Raises BackendError for a pipeline that does not fit the device."""
    with program_on(description, compiled) as (shared, program):
        chosen = {name: program._lower(bucket) for name, bucket in BUCKETS.items()}
        for dispatches in chosen.values():
            shared.kernels.compile(dispatches)
        shared.kernels.compile(program._recorder.choices(BUCKETS["16 sequences"]))
    return chosen


def kernels(found: Sequence[Dispatch], kinds: Sequence[str]) -> str:
    """Return the kernels of some kinds, without the types of weights and caches."""
    if not found:
        return "not used"
    names = dict.fromkeys(dispatch.kernel.partition(".")[0] for dispatch in found)
    return ", ".join(f"`{name}`" for name in names if name.startswith(tuple(kinds)))


def row(name: str, profile: Profile, chosen: dict[str, list[Dispatch]]) -> str:
    one, sixteen, prompt = chosen.values()
    shapes = [shape for shape in profile.matrices if shape.c == "float32"]
    matrices = ", ".join(f"{shape.m}x{shape.n}x{shape.k}" for shape in shapes) or "-"
    asked = without_quirks(profile.described()).subgroup_size
    size = f"{asked} of {profile.subgroup_size}" if asked != profile.subgroup_size else str(asked)
    cells = [
        f"`{name}`",
        f"{profile.api.removesuffix('.0')}, {size}, {profile.shared // 1024} KiB, {matrices}",
        kernels(one, PRODUCTS),
        kernels(sixteen, PRODUCTS),
        kernels(prompt, PRODUCTS),
        ", ".join(filter(None, dict.fromkeys(kernels(found, ATTENTION) for found in (one, prompt)))),
        profile.source,
    ]
    return f"| {' | '.join(cells)} |\n"


HEADER = (
    "| profile | Vulkan, subgroup, shared memory, matrices | products: 1 token | 16 sequences | prompts | attention "
    "| reported in |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)


def write_model(path: Path) -> Path:
    """Write a llama of two layers with matrices of Q4_0."""
    with GGUFFile.open(tiny_llama(path.with_suffix(".f32"), dim=256, n_ff=512)) as file:
        numbers = {name: tensor.dequantize() for name, tensor in file.tensors.items()}
        types = {name: GGMLType.Q4_0 for name, values in numbers.items() if values.ndim == 2}
        tensors = {name: quantize(values, types[name]) if name in types else values for name, values in numbers.items()}
        return write_gguf(path, file.metadata, tensors, types)


def table(compiled: Compiled) -> str:
    """Return the table; equal devices are lowered once."""
    lowered: dict[object, dict[str, list[Dispatch]]] = {}
    lines = [HEADER]
    for name, profile in PROFILES.items():
        description = without_quirks(profile.described())
        key = (
            *(
                description.subgroup_size,
                description.api_version,
                description.features,
                description.cooperative_matrices,
                description.avoided,
            ),
            *(
                description.threadgroup_memory_bytes,
                description.max_threads_per_threadgroup,
                description.max_buffer_bytes,
            ),
        )
        if key not in lowered:
            usable = description.features >= NEEDED
            lowered[key] = dispatches(description, compiled) if usable else {bucket: [] for bucket in BUCKETS}
        lines.append(row(name, profile, lowered[key]))
    return "".join(lines)


def decisions(quirk: Quirk) -> str:
    """Return what a quirk changes."""
    parts = [f"no `{name}`" for name in sorted(quirk.without)]
    parts += [f"subgroups of {quirk.subgroup}"] if quirk.subgroup else []
    parts += [f"submits of {quirk.dispatches} dispatches"] if quirk.dispatches else []
    return ", ".join(parts)


def quirks() -> str:
    """Return the table of quirks, with the profiles that each applies to."""
    lines = ["| quirk | then | profiles |\n", "| --- | --- | --- |\n"]
    for quirk in QUIRKS:
        names = ", ".join(f"`{name}`" for name, profile in PROFILES.items() if quirk.applies(profile.described()))
        lines.append(f"| {quirk.why} | {decisions(quirk)} | {names} |\n")
    return "".join(lines)


def text(page: str, compiled: Compiled) -> str:
    """Return the page with the tables between their marks."""
    for begin, made in ((BEGIN, table(compiled)), (QUIRKS_BEGIN, quirks())):
        before, _, rest = page.partition(begin)
        page = before + begin + "\n" + made + "\n" + END + rest.partition(END)[2]
    return page


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, captured(write_model(Path(folder) / "model.gguf")) as compiled:
        TARGET.write_text(text(TARGET.read_text(), compiled))


if __name__ == "__main__":
    main()
