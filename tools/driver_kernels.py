"""Compile the kernels that the backend chooses for GPUs by Mesa's drivers: ``python tools/driver_kernels.py``.

The GPUs are not there (tools/driver_compiler.py). For each the driver says what the device offers, models are lowered
for it on paper (tools/paper_device.py), and each pipeline is compiled. The report has what failed and what spills.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from pumice.gguf import GGMLType, row_bytes  # noqa: E402
from pumice.gguf.writer import TensorInfo, Writer  # noqa: E402
from pumice.plugin import BackendError  # noqa: E402
from pumice_vulkan.buckets import Bucket  # noqa: E402
from pumice_vulkan.device import DeviceDescription  # noqa: E402
from pumice_vulkan.probe import matrix_shape  # noqa: E402
from pumice_vulkan.program import DeviceProgram  # noqa: E402
from pumice_vulkan.quirks import without_quirks  # noqa: E402
from pumice_vulkan.recorder import USUAL_CHOICES  # noqa: E402
from tiny_models import ATTENTION, EXPERTS, LLAMA, TinyModel, tiny, whole_keys  # noqa: E402
from tiny_zoo import ZOO  # noqa: E402
from tiny_zoo.routed import HEAD_NORMS  # noqa: E402
from tools.driver_compiler import Compiler, Mesa, Pipeline, Result  # noqa: E402
from tools.gpu_profiles import Compiled, captured, shared_on  # noqa: E402
from tools.paper_device import PaperDevice  # noqa: E402
from tools.published_shapes import MODELS, experts  # noqa: E402
from tools.shader_checks import SHADERS  # noqa: E402
from tools.synthetic_model import is_matrix  # noqa: E402


@dataclass(frozen=True)
class Target:
    """A GPU, as a driver of Mesa is asked for it: by a variable, and by a drm-shim unless the driver needs none."""

    driver: str
    variable: str
    chip: str
    shim: str = ""

    def open(self, mesa: Mesa) -> Compiler:
        return Compiler(mesa, self.driver, {self.variable: self.chip}, self.shim)


def _radv(*chips: str) -> dict[str, Target]:
    return {chip: Target("radeon", "RADV_FORCE_FAMILY", chip) for chip in chips}


def _shimmed(driver: str, variable: str, shim: str, **chips: str) -> dict[str, Target]:
    return {name: Target(driver, variable, chip, shim) for name, chip in chips.items()}


TARGETS = {
    **_radv("tahiti", "hawaii", "polaris10", "vega10", "vega20", "navi10", "navi14", "navi21", "navi24"),
    **_radv("navi31", "navi32", "navi33", "gfx1100", "gfx1103", "gfx1150", "gfx1200", "gfx1201"),
    **{
        f"amdgpu-{chip}": Target("radeon", "AMDGPU_GPU_ID", chip, "amdgpu") for chip in ("navi31", "gfx1150", "gfx1201")
    },
    **_shimmed(
        "intel", "INTEL_STUB_GPU_PLATFORM", "intel", skl="skl", tgl="tgl", dg2="dg2", mtl="mtl", lnl="lnl", bmg="bmg"
    ),
    **_shimmed("freedreno", "FD_GPU_ID", "freedreno", adreno730="730", adreno750="750"),
    **_shimmed("nouveau", "NOUVEAU_CHIPSET", "nouveau", pascal="134", turing="164", ampere="174"),
}
"""By name; a chip that a Mesa does not know is left out."""
BUCKETS = (
    *(Bucket(n, n, lone=True) for n in (1, 2, 4, 16, 64)),
    *(Bucket(n, 1) for n in (4, 32, 128, 512)),
)
EVERY_TYPE = tuple(type for type in GGMLType if (SHADERS / f"matvec.{type.name.lower()}.spv").exists())


def dense(n: int, n_ff: int, heads: int, n_vocab: int, n_layer: int = 1) -> TinyModel:
    sizes = {"n": n, "h": heads, "g": 8, "d": n // heads, "f": n_ff, "V": n_vocab}
    return tiny("llama", LLAMA, n_layer=n_layer, dims=sizes, context_length=8192)


@dataclass(frozen=True)
class Model:
    """A model to lower: the type of its matrices and of its caches."""

    shape: TinyModel
    type: GGMLType
    kv_type: str = "f16"

    def write(self, path: Path) -> Path:
        """Write the file, in which every number is zero."""
        infos = [
            TensorInfo(name, self.type if is_matrix(name, shape) else GGMLType.F32, shape)
            for name, shape in self.shape.shapes.items()
        ]
        with Writer(path, whole_keys(self.shape.architecture, self.shape.metadata), infos) as writer:
            for info in infos:
                writer.write(np.zeros((*info.shape[:-1], row_bytes(info.type, info.shape[-1])), np.uint8))
        return path


def shallow(model: TinyModel, n_layer: int) -> TinyModel:
    """Return the first layers of a model."""
    shapes = {
        name: shape
        for name, shape in model.shapes.items()
        if not name.startswith("blk.") or int(name.split(".")[1]) < n_layer
    }
    metadata = model.metadata | {"block_count": n_layer}
    metadata |= {
        key: value[:n_layer] for key, value in metadata.items() if key in PER_LAYER and isinstance(value, list)
    }
    return replace(model, metadata=metadata, shapes=shapes)


PER_LAYER = ("attention.head_count_kv", "attention.sliding_window_pattern")
SMALL_ZOO = (
    *("deepseek2", "gemma2", "gemma3", "bloom", "mamba", "glm-dsa", "deepseek4", "minimax-01", "rwkv6", "kimi-linear"),
    *("granitemoe", "bailingmoe2", "phi3-long", "gpt-oss", "qwen4exp"),
)
"""Tiny models with operations that the others lack."""


def models(quick: bool = False) -> Iterator[Model]:
    """Yield Llama's shapes with every type, published models that are recurrent or have experts, and tiny ones."""
    large = dense(4096, 14336, 32, 4096)
    yield Model(large, GGMLType.Q4_0)
    yield Model(large, GGMLType.Q6_K)
    if quick:
        return
    for type in EVERY_TYPE:
        if type not in (GGMLType.Q4_0, GGMLType.Q6_K):
            yield Model(large, type)
    yield Model(dense(2048, 8192, 32, 128256), GGMLType.Q4_0)
    for kv_type in ("f32", "bf16", "q8_0", "q5_1", "q4_0"):
        yield Model(dense(1024, 3072, 16, 4096), GGMLType.Q4_0, kv_type)
    routed = {"n": 2048, "h": 32, "g": 4, "d": 128, "E": 16, "e": 768}
    with_experts = experts("qwen3moe", f"{ATTENTION} {HEAD_NORMS} {EXPERTS}", 8, routed)
    for type in (GGMLType.Q4_0, GGMLType.Q6_K, GGMLType.MXFP4):
        yield Model(shallow(with_experts, 1), type)
    for name, n_layer in (("mamba2-130m", 1), ("qwen35-0.8b", 4), ("lfm2-350m", 3), ("rwkv7-1.5b", 2)):
        yield Model(shallow(MODELS[name], n_layer), GGMLType.Q4_0)
    for name in SMALL_ZOO:
        yield Model(ZOO[name], GGMLType.Q4_0)


@functools.cache
def _names() -> dict[int, str]:
    """Return the names of the kernels by the hash of their SPIR-V."""
    return {hash(path.read_bytes()): path.stem for path in SHADERS.glob("*.spv")}


def asked(device: PaperDevice) -> Iterator[Pipeline]:
    """Yield the pipelines that were made on a device."""
    for made in device.pipelines:
        yield Pipeline(
            *(_names()[hash(made.spirv)], made.constants, made.n_buffers, made.push_bytes, made.full_subgroups),
            device.subgroup_size,
        )


def of_model(description: DeviceDescription, compiled: Compiled, buckets: Sequence[Bucket]) -> Iterator[Pipeline]:
    """Yield the pipelines of a model's steps. Raises BackendError for one that does not fit the device."""
    halves = (False, True) if "float16" in description.features and not matrix_shape(description) else (False,)
    for half in halves:
        with PaperDevice(description) as device:
            program = DeviceProgram(shared_on(device, half), *compiled)
            kernels = program._shared.kernels
            for bucket in buckets:
                kernels.compile(program.lowered.dispatches(bucket))
                if bucket.lone:
                    kernels.compile(program._recorder.choices(bucket, USUAL_CHOICES))
            yield from asked(device)
            program.close()


@dataclass
class Report:
    """The driver's results for a target."""

    name: str
    description: DeviceDescription
    results: dict[Pipeline, Result] = field(default_factory=dict)

    @property
    def failed(self) -> dict[Pipeline, str]:
        return {pipeline: result.problem for pipeline, result in self.results.items() if result.problem}

    @property
    def spilled(self) -> dict[Pipeline, int]:
        """Return the registers that are spilled, or the instructions that do it, of the pipelines that have some."""
        spills = {
            pipeline: sum(result.statistics.get(name, 0) for name in SPILLS)
            for pipeline, result in self.results.items()
        }
        return {pipeline: n for pipeline, n in spills.items() if n}

    @property
    def waves(self) -> dict[Pipeline, int]:
        """Return the subgroups that a processor's unit holds at a time, where the driver tells."""
        waves = {pipeline: result.statistics.get(WAVES) for pipeline, result in self.results.items()}
        return {pipeline: n for pipeline, n in waves.items() if n}

    @property
    def row(self) -> str:
        """Return a row of a Markdown table."""
        device, waves = self.description, self.waves
        least, most = min(waves.values(), default=0), max(waves.values(), default=0)
        cells = [
            f"`{self.name}`",
            re.sub(r".*Mesa (\d+\.\d+\.\d+).*", r"\1", device.vulkan_driver),
            str(without_quirks(device).subgroup_size),
            str(len(self.results)),
            str(len(self.failed)),
            f"{len(self.spilled)} (at most {max(self.spilled.values())})" if self.spilled else "0",
            f"{least} of {most}: {min(waves, key=lambda pipeline: waves[pipeline])}" if waves else "-",
        ]
        return f"| {' | '.join(cells)} |"


SPILLS = ("Spilled VGPRs", "Spilled SGPRs", "Spills", "Fills", "STP Count", "LDP Count")
"""Statistics of RADV, ANV and Turnip."""
WAVES = "Subgroups per SIMD"
HEADER = (
    "| GPU | Mesa | subgroup | pipelines | refused | with spills | fewest subgroups per SIMD |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


def lowered(
    descriptions: Iterable[DeviceDescription],
    compiled: Iterable[Compiled],
    buckets: Sequence[Bucket] = BUCKETS,
) -> dict[DeviceDescription, list[Pipeline]]:
    """Return the pipelines of each description; devices that differ by their names alone are lowered once."""
    by_description: dict[DeviceDescription, list[Pipeline]] = {}
    by_device: dict[DeviceDescription, dict[Pipeline, None]] = {}
    compiled = list(compiled)
    for description in descriptions:
        alike = replace(without_quirks(description), name="AMD GPU", type="discrete", most_dispatches=0, limited=True)
        if alike not in by_device:
            pipelines = by_device[alike] = {}
            for model in compiled:
                pipelines |= dict.fromkeys(of_model(alike, model, buckets))
        by_description[description] = list(by_device[alike])
    return by_description


def reported(name: str, mesa: Mesa, pipelines: Iterable[Pipeline]) -> Report:
    """Compile pipelines for a target; after a crash of the compiler a new one goes on behind the pipeline."""
    left = list(pipelines)
    report: Report | None = None
    while True:
        with TARGETS[name].open(mesa) as compiler:
            report = report or Report(name, compiler.description)
            results = dict(zip(left, compiler.compile(left), strict=False))
        report.results |= results
        left = left[len(results) :]
        if not left:
            return report


def capture(shapes: Iterable[Model], stack: ExitStack) -> Iterator[Compiled]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for i, model in enumerate(shapes):
        path = model.write(folder / f"{i}.gguf")
        yield stack.enter_context(captured(path, n_batch=512, n_parallel=64, kv_type=model.kv_type))
        path.unlink()  # it stays mapped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="GPU", help=" ".join(TARGETS))
    parser.add_argument("--quick", action="store_true", help="two models only")
    parser.add_argument("--mesa", type=Path, default=Path("/"), help="folder of an unpacked Mesa")
    parser.add_argument("--shims", type=Path, help="folder of drm-shims, as tools/drm_shims.sh builds them")
    parser.add_argument("--statistics", type=Path, help="file for the drivers' numbers about each pipeline")
    arguments = parser.parse_args()
    mesa = Mesa(arguments.mesa, arguments.shims)
    descriptions = {}
    for name in arguments.targets:
        try:
            with TARGETS[name].open(mesa) as compiler:
                descriptions[name] = compiler.description
        except BackendError as error:
            print(f"{name}: {error}", file=sys.stderr)
    with ExitStack() as stack:
        pipelines = lowered(descriptions.values(), capture(models(arguments.quick), stack))
    print(HEADER)
    reports = {}
    for name, description in descriptions.items():
        reports[name] = report = reported(name, mesa, pipelines[description])
        print(report.row, flush=True)
        for pipeline, problem in report.failed.items():
            print(f"{name}: {pipeline}: {problem}", file=sys.stderr)
        for pipeline, n in report.spilled.items():
            print(f"{name}: {pipeline}: {n} spilled", file=sys.stderr)
    if arguments.statistics:
        statistics = {
            name: {str(key): dict(value.statistics) for key, value in report.results.items()}
            for name, report in reports.items()
        }
        arguments.statistics.write_text(json.dumps(statistics, indent=1))
    return int(any(report.failed for report in reports.values()))


if __name__ == "__main__":
    sys.exit(main())
