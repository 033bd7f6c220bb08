"""Write the table of kernels by device to docs/gpu_profiles.md: ``python tools/gpu_profiles.py``.

The kernels are those that the backend chooses for a two-layer model on a device that exists on paper alone
(tools/paper_device.py): a profile of ``pumice_vulkan/profiles.py`` without its quirks. The page is written only if
every variant of these kernels passes the checks that its table lists (tools/shader_checks.py).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import pumice  # noqa: E402
from gguf_files import tiny_llama, write_gguf  # noqa: E402
from pumice.gguf import GGMLType, GGUFFile  # noqa: E402
from pumice.plugin.unstable import Limits, MemoryPlan, Program, Segment  # noqa: E402
from pumice_vulkan import VulkanBackend  # noqa: E402
from pumice_vulkan.backend import NEEDED  # noqa: E402
from pumice_vulkan.buckets import Bucket  # noqa: E402
from pumice_vulkan.device import DeviceDescription  # noqa: E402
from pumice_vulkan.kernels import Kernels  # noqa: E402
from pumice_vulkan.lower.rule import Dispatch  # noqa: E402
from pumice_vulkan.memory import Arena, Scratch, Weights  # noqa: E402
from pumice_vulkan.probe import has_lanes, matrix_shape  # noqa: E402
from pumice_vulkan.profiles import PROFILES, Profile  # noqa: E402
from pumice_vulkan.program import DeviceProgram  # noqa: E402
from pumice_vulkan.quirks import QUIRKS, Quirk, without_quirks  # noqa: E402
from pumice_vulkan.recorder import USUAL_CHOICES  # noqa: E402
from pumice_vulkan.shared import Shared  # noqa: E402
from pumice_vulkan.tuning import TileNumbers  # noqa: E402
from quantizers import quantize  # noqa: E402
from tools import shader_checks  # noqa: E402
from tools.paper_device import PaperDevice  # noqa: E402

TARGET = ROOT / "docs" / "gpu_profiles.md"
BEGIN, END = "<!-- written by tools/gpu_profiles.py -->\n", "<!-- end -->\n"
KERNELS_BEGIN = "<!-- kernels, written by tools/gpu_profiles.py -->\n"
QUIRKS_BEGIN = "<!-- quirks, written by tools/gpu_profiles.py -->\n"
BUCKETS = {
    "1 token": Bucket(1, 1, True),
    "16 sequences": Bucket(16, 16, True),
    "prompt": Bucket(128, 1),
    "4 tokens": Bucket(4, 1),
}
HALF = "prompt with activations: half"
PRODUCTS, ATTENTION = ("matvec", "matmul"), ("attention_",)
Compiled = tuple[Segment, MemoryPlan, Limits]


@contextmanager
def captured(path: Path, n_batch: int = 128, n_parallel: int = 16, **options: Any) -> Iterator[Compiled]:
    """Load a model on a device of paper, and yield what was to compile: segment, memory plan and limits.

    Weights are open in this context. ``options`` of the configuration are added.
    """
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
        pumice.load(path, backend="vulkan", n_ctx=4096, n_batch=n_batch, config={"n_parallel": n_parallel, **options}),
    ):
        yield compiled[0]


def shared_on(device: PaperDevice, half: bool = False) -> Shared:
    """Return a model's state on a device, whose matrix units work if their shape is the one that kernels use.

    ``half``: with the setting ``activations: half``.
    """
    cooperative = matrix_shape(device.description)
    int8 = "integer_dot_product_fast" in device.features and not half
    lanes = has_lanes(device.description)
    memories = Weights(device), Arena(device), Scratch(device), Scratch(device)
    return Shared(device, Kernels(device), *memories, int8, cooperative, lanes=lanes, half=half)


@contextmanager
def program_on(
    description: DeviceDescription, compiled: Compiled, half: bool = False
) -> Iterator[tuple[Shared, DeviceProgram]]:
    with PaperDevice(description) as device:
        shared = shared_on(device, half)
        program = DeviceProgram(shared, *compiled)
        yield shared, program
        program.close()


def dispatches(description: DeviceDescription, compiled: Compiled) -> dict[str, list[Dispatch]]:
    """Return the dispatches of each bucket. Raises BackendError for a pipeline that does not fit the device."""
    with program_on(description, compiled) as (shared, program):
        chosen = {name: program.lowered.dispatches(bucket) for name, bucket in BUCKETS.items()}
        for dispatches in chosen.values():
            shared.kernels.compile(dispatches)
        shared.kernels.compile(program._recorder.choices(BUCKETS["16 sequences"], USUAL_CHOICES))
    if "float16" in description.features and not matrix_shape(description):
        with program_on(description, compiled, half=True) as (shared, program):
            lowered = program.lowered.dispatches(BUCKETS["prompt"])
            shared.kernels.compile(lowered)
        chosen[HALF] = [dispatch for dispatch in lowered if dispatch.kernel.startswith(TileNumbers.HALF.value)]
    return chosen


def kernels(found: Sequence[Dispatch], kinds: Sequence[str]) -> str:
    """Return the kernels of some kinds, without the types of weights and caches."""
    if not found:
        return "not used"
    names = dict.fromkeys(dispatch.kernel.partition(".")[0] for dispatch in found)
    return ", ".join(f"`{name}`" for name in names if name.startswith(tuple(kinds)))


def row(name: str, profile: Profile, chosen: dict[str, list[Dispatch]]) -> str:
    one, sixteen, prompt, *_ = chosen.values()
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
        ", ".join(filter(None, dict.fromkeys(kernels(sizes, ATTENTION) for sizes in (one, prompt)))),
        profile.source,
    ]
    return f"| {' | '.join(cells)} |\n"


HEADER = (
    "| profile | Vulkan, subgroup, shared memory, matrices | products: 1 token | 16 sequences | prompts | attention "
    "| reported in |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)


def write_model(path: Path, type: GGMLType = GGMLType.Q4_0) -> Path:
    """Write a llama of two layers with matrices of a type."""
    with GGUFFile.open(tiny_llama(path.with_suffix(".f32"), dim=256, n_ff=512)) as file:
        numbers = {name: tensor.dequantize() for name, tensor in file.tensors.items()}
        types = {name: type for name, values in numbers.items() if values.ndim == 2}
        tensors = {name: quantize(values, types[name]) if name in types else values for name, values in numbers.items()}
        return write_gguf(path, file.metadata, tensors, types)


@dataclass
class Kernel:
    """A kernel, and the profiles that choose it."""

    name: str
    profiles: list[str] = field(default_factory=list)

    @property
    def vulkan(self) -> str:
        """The oldest version of Vulkan among its profiles, such as "1.2"."""
        major, minor = min(tuple(map(int, PROFILES[name].api.split(".")[:2])) for name in self.profiles)
        return f"{major}.{minor}"

    @property
    def is_translated(self) -> bool:
        """True if a device chooses it whose driver translates it to Metal."""
        return any("MoltenVK" in PROFILES[name].vulkan_driver for name in self.profiles)

    @property
    def needs_units(self) -> bool:
        """True if only devices with matrix units choose it, which lavapipe does not have."""
        return all(matrix_shape(PROFILES[name].described()) for name in self.profiles)

    @property
    def row(self) -> str:
        metal = "yes" if self.is_translated else "-"
        ran = _RAN.get(self.name, "H100, H200") if self.needs_units else "lavapipe"
        return f"| `{self.name}` | {len(self.profiles)} | {self.vulkan} | {metal} | {ran} |\n"


_OTHER_SHAPES = "H100, H200, lavapipe (8x8x8)"
_RAN = dict.fromkeys(("matmul_cooperative", "matmul_few", "attention_cooperative"), _OTHER_SHAPES)
"""Where kernels on matrix units have run, with which shapes besides 16x16x16."""

KERNELS_HEADER = (
    "| kernel | profiles | valid for Vulkan | translated to Metal | has run on |\n| --- | --- | --- | --- | --- |\n"
)

OTHERS = "Kernels of operations that this model lacks; they are valid for Vulkan 1.2 and translated to Metal, too:"


def chosen_kernels(lowered: Mapping[str, dict[str, list[Dispatch]]]) -> list[Kernel]:
    """Return the kernels that profiles choose, by name."""
    by_name: dict[str, Kernel] = {}
    for profile, buckets in lowered.items():
        names = {dispatch.kernel.partition(".")[0] for dispatches in buckets.values() for dispatch in dispatches}
        for name in names:
            by_name.setdefault(name, Kernel(name)).profiles.append(profile)
    return [by_name[name] for name in sorted(by_name)]


def pipelines(lowered: Mapping[str, dict[str, list[Dispatch]]]) -> dict[tuple[str, tuple[int, ...]], str]:
    """Return the oldest version of Vulkan of each kernel with constants, and these."""
    oldest: dict[tuple[str, tuple[int, ...]], str] = {}
    for profile, buckets in lowered.items():
        vulkan = Kernel("", [profile]).vulkan
        for dispatch in (dispatch for dispatches in buckets.values() for dispatch in dispatches):
            key = dispatch.kernel, tuple(dispatch.constants)
            if dispatch.constants:
                oldest[key] = min(oldest.get(key, vulkan), vulkan)
    return oldest


def other_kernels(chosen: Sequence[Kernel]) -> list[str]:
    """Return the kernels that run on every device and that the model of the table does not need."""
    names = {kernel.name for kernel in chosen}
    return [name for name in shader_checks.families_for_all() if name not in names]


def problems(chosen: Sequence[Kernel], validator: str, translator: str) -> list[str]:
    """Return the problems that the checks of the table, and of the kernels below it, find."""
    others = other_kernels(chosen)
    versions = {kernel.name: kernel.vulkan for kernel in chosen} | dict.fromkeys(others, "1.2")
    translated = [kernel.name for kernel in chosen if kernel.is_translated]
    return [*shader_checks.invalid(validator, versions), *shader_checks.untranslated(translator, translated + others)]


def lowered_profiles(compiled: Compiled) -> dict[str, dict[str, list[Dispatch]]]:
    """Return the dispatches of each profile; equal devices are lowered once."""
    lowered: dict[object, dict[str, list[Dispatch]]] = {}
    by_profile = {}
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
        by_profile[name] = lowered[key]
    return by_profile


def table(lowered: Mapping[str, dict[str, list[Dispatch]]]) -> str:
    return HEADER + "".join(row(name, profile, lowered[name]) for name, profile in PROFILES.items())


def decisions(quirk: Quirk) -> str:
    """Return the changes by a quirk."""
    parts = [f"no `{name}`" for name in sorted(quirk.without)]
    parts += [f"subgroups of {quirk.subgroup}"] if quirk.subgroup else []
    parts += [f"short submits, of {quirk.dispatches} dispatches"] if quirk.dispatches else []
    return ", ".join(parts)


def drivers(quirk: Quirk) -> str:
    """Return the drivers and versions that a quirk is about."""
    names = ", ".join(driver.title for driver in quirk.drivers) or "any"
    since, before = (".".join(map(str, version)) for version in (quirk.since, quirk.before))
    return names + (f" from {since}" if since else "") + (f" before {before}" if before else "")


def quirks() -> str:
    """Return the table of quirks, with the profiles that each applies to."""
    lines = ["| quirk | driver | then | profiles |\n", "| --- | --- | --- | --- |\n"]
    for quirk in QUIRKS:
        names = ", ".join(f"`{name}`" for name, profile in PROFILES.items() if quirk.applies(profile.described()))
        lines.append(f"| {quirk.why} | {drivers(quirk)} | {decisions(quirk)} | {names or 'none'} |\n")
    return "".join(lines)


def text(page: str, lowered: Mapping[str, dict[str, list[Dispatch]]]) -> str:
    """Return the page with the tables between their marks."""
    chosen = chosen_kernels(lowered)
    rows = KERNELS_HEADER + "".join(kernel.row for kernel in chosen)
    others = ", ".join(f"`{name}`" for name in other_kernels(chosen))
    rows += f"\n{OTHERS} {others}.\n"
    for begin, made in ((BEGIN, table(lowered)), (KERNELS_BEGIN, rows), (QUIRKS_BEGIN, quirks())):
        before, _, rest = page.partition(begin)
        page = before + begin + "\n" + made + "\n" + END + rest.partition(END)[2]
    return page


def main() -> int:
    names = "spirv-val", "spirv-opt", "spirv-cross"
    validator, optimizer, translator = map(shader_checks.program, names)
    if validator is None or optimizer is None or translator is None:
        print(f"error: the checks need {', '.join(names)} (Debian: spirv-tools, spirv-cross)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, captured(write_model(Path(folder) / "model.gguf")) as compiled:
        lowered = lowered_profiles(compiled)
    wrong = problems(chosen_kernels(lowered), validator, translator)
    if wrong := wrong + shader_checks.invalid_pipelines(optimizer, validator, pipelines(lowered)):
        print("\n".join(["error: the page is not written, since checks fail:", *wrong]), file=sys.stderr)
        return 1
    TARGET.write_text(text(TARGET.read_text(), lowered))
    return 0


if __name__ == "__main__":
    sys.exit(main())
