"""Fixtures that every test may use."""

import gc
import logging
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import one_look
from nightly import EXAMPLES
from pumice.machine import bounded_threads, cores

# Before NumPy is imported: its threads wait for each other in loops, and on busy cores tests take twice as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Before Vulkan's loader is: threads of the software device take turns on cores that other workers keep busy.
os.environ.setdefault("LP_NUM_THREADS", "0")

# Tests compute on Mesa's lavapipe, whose results do not depend on the machine: matrix units round otherwise, and what
# a GPU's times let be drafted is another text. `PUMICE_TEST_GPU=1` takes this machine's GPUs.
if sys.platform == "linux" and not os.environ.get("PUMICE_TEST_GPU"):
    os.environ.setdefault("VK_LOADER_DRIVERS_SELECT", "*lvp_icd*")

# The demo model's tools are run from the root of the repository, not installed.
sys.path.append(str(Path(__file__).resolve().parents[1]))

# A busy machine fails no test by its slowness.
SUPPRESSED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
settings.register_profile("busy", deadline=None, max_examples=EXAMPLES, suppress_health_check=SUPPRESSED)
settings.load_profile("busy")

SHARED = Path(__file__).resolve().parents[2] / "shared"


# Files whose tests take longest, mostly to compile kernels. Last, one of them would keep a single core busy.
LONGEST = [
    "plugins/cpu/test_instruction_sets.py",
    "plugins/cpu/test_cpu_attention.py",
    "plugins/cpu/test_cpu_models.py",
    "plugins/cpu/test_cpu_linear.py",
    "plugins/vulkan/test_vulkan_persistent.py",
    "plugins/vulkan/test_vulkan_models.py",
    "plugins/vulkan/test_vulkan_speculation.py",
    "plugins/vulkan/test_vulkan_attention.py",
    "plugins/vulkan/test_picker.py",
    "plugins/test_speculation.py",
    "plugins/server/page/test_page_conversations.py",
    "plugins/server/page/test_page_answers.py",
    "plugins/server/page/test_page.py",
    "plugins/vulkan/test_vulkan_memory.py",
    "plugins/vulkan/test_persistent_shapes.py",
    "plugins/cpu/test_quantizers.py",
    "plugins/server/batch/test_batch_command.py",
    "plugins/cpu/test_cpu_experts.py",
    "plugins/cpu/test_cpu_precompiled.py",
    "third_party/test_third_party.py",
]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: tests of processes, servers and the page wait for them, and leave a core to others."""
    return cores() + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: their modules stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and mark properties."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    for item in items:
        if type(item) is pytest.Function and is_hypothesis_test(item.obj):  # no state machine, which has its own number
            item.add_marker("property")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in ten lines what ran, and what was skipped and why."""
    stats = terminalreporter.stats
    ran = [report.nodeid for kind in ("passed", "failed") for report in stats.get(kind, []) if report.when == "call"]
    for line in one_look.lines(ran, stats.get("skipped", [])):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A command that ran in this process shows the library's logs; after the test nobody does."""
    logger, shown = logging.getLogger("pumice"), warnings.showwarning
    before = logger.level, logger.propagate, logger.handlers
    yield
    logger.setLevel(before[0])
    logger.propagate, logger.handlers = before[1:]
    warnings.showwarning = shown


@pytest.fixture(autouse=True, scope="module")
def no_old_objects_to_look_at() -> None:
    """Leave what earlier modules hold out of garbage collection: Numba alone keeps millions of objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def share_of_the_cores() -> Iterator[None]:
    """Let the CPU backend take a worker's share of the cores: more threads would wait in loops for each other's cores.

    Tests of several threads, and of processes that help to compile, ask for their number.
    """
    n_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = max(1, cores() // n_workers)
    with (
        mock.patch("pumice_cpu.backend.bounded_threads", lambda n, option: bounded_threads(n or share, option)),
        mock.patch("pumice_cpu.compiler.cores", return_value=share),
    ):
        yield


@pytest.fixture(autouse=True, scope="session")
def short_measurements() -> Iterator[None]:
    """Measure the steps of each model that loads in this process once, instead of for half a second."""
    with mock.patch.multiple("pumice.engine.drafts.choice", MEASURING_SECONDS=0, WARMING_SECONDS=0, LEAST_ROUNDS=1):
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference models and vocabularies beside the checkout; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip(f"reference data not found at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def llama_cpp() -> Callable[..., str]:
    """Run a program of llama.cpp and return what it wrote; skips where the program is not on the PATH."""

    def run(program: str, *arguments: object) -> str:
        path = shutil.which(program)
        if path is None:
            pytest.skip(f"llama.cpp's {program} is not on the PATH")
        done = subprocess.run([path, *map(str, arguments)], capture_output=True, check=False)
        output = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode == 0, output
        return output

    return run


@pytest.fixture(scope="session")
def tiny_logits() -> dict[str, Any]:
    """llama.cpp's logits for the models of ``tiny_zoo``, by name."""
    import numpy as np

    found: dict[str, Any] = {}
    for path in (Path(__file__).parent / "fixtures" / "tiny_logits").iterdir():
        with np.load(path) as file:
            found |= file
    return found


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``tiny_file("gemma3")``: the file of a model of ``tiny_zoo``, made once."""
    from tiny_zoo import ZOO

    directory = tmp_path_factory.mktemp("tiny_models")
    return cache(lambda name: ZOO[name].write(directory / f"{name}.gguf"))


@pytest.fixture(scope="session")
def demo_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``demo_model("Q4_K")``: the file of the demo model with its matrices in that type, made once."""
    from demo_models import write_demo_model
    from pumice.gguf import GGMLType

    directory = tmp_path_factory.mktemp("demo_model")
    return cache(lambda name: write_demo_model(directory / f"{name}.gguf", GGMLType[name]))
