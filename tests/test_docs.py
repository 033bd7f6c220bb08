"""The handbook says what the code does."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from tools.site.reference import fill

import pumice
from pumice.options import ENGINE, OUTPUT, REQUEST, SAMPLING, TEMPLATE
from pumice.registry.kinds import KINDS
from pumice_cpu import CpuBackend
from pumice_mlx.backend import MlxBackend
from pumice_numpy import NumpyBackend
from pumice_samplers import SAMPLERS
from pumice_vulkan import VulkanBackend

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "tests" / "third_party" / "pumice-example"


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize(
    "path", [*sorted(EXAMPLE.rglob("*.py")), EXAMPLE / "pyproject.toml"], ids=lambda path: path.name
)
def test_the_tutorial_shows_the_plugin_that_is_tested(path):
    language = "python" if path.suffix == ".py" else "toml"
    assert f"`{path.relative_to(EXAMPLE)}`:\n\n```{language}\n{path.read_text()}```\n" in read("plugins.md") + read(
        "protocols.md"
    )


def test_every_hook_is_in_the_table_of_the_tutorial():
    hooks = re.findall(r"^\| `(pumice_register_\w+)`", read("plugins.md"), re.MULTILINE)
    assert sorted(hooks) == sorted(kind.hook for kind in KINDS.values())


def test_every_option_of_a_backend_is_described_with_its_default():
    blocks = re.findall(r"```yaml\n(.*?)```", read("configuration.md").partition("## Backends")[2], re.DOTALL)
    described = yaml.safe_load(blocks[0])
    declared = {"cpu": CpuBackend, "mlx": MlxBackend, "numpy": NumpyBackend, "vulkan": VulkanBackend}
    assert described == {name: dataclasses.asdict(backend.Options()) for name, backend in declared.items()}


def test_every_variable_of_the_environment_is_described():
    sources = [path.read_text() for root in ("core", "plugins") for path in (ROOT / root).rglob("*.py")]
    used = {name for source in sources for name in re.findall(r'"(PUMICE_[A-Z_]+)"', source)}
    assert used == set(re.findall(r"^\| `(PUMICE_\w+)", read("configuration.md"), re.MULTILINE))


def test_code_on_the_python_page_runs():
    shown: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", read("python.md"), re.DOTALL):
        exec(compile(block, "docs/python.md", "exec"), shown)
    shown["model"].close()


def test_the_page_on_python_has_every_error():
    errors = {name for name in pumice.__all__ if name.endswith("Error")}
    assert errors <= set(re.findall(r"`(?:pumice\.)?(\w+)`", read("python.md")))


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("python", [*REQUEST, *OUTPUT, "sampling"]),
        ("chat", [*TEMPLATE]),
        ("configuration", [*ENGINE, *SAMPLING, *SAMPLERS]),
    ],
)
def test_the_site_has_a_row_for_every_option(page, names):
    rows = re.findall(r"^\| `(\w+)` \|(?: `(\w+)` \|)?", fill(page, read(f"{page}.md")), re.MULTILINE)
    assert set(names) <= {name for row in rows for name in row}


def test_the_demo_model_is_as_good_as_it_says():
    fixture = json.loads((ROOT / "tests" / "fixtures" / "demo_model.json").read_text())
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", read("demo_model.md"), re.MULTILINE)
    assert [name for name, *_ in rows] == list(fixture["types"])
    for name, *numbers in rows:
        measured = fixture["types"][name]["llama.cpp"]
        expected = (measured["bytes"] / 1e6, measured["numpy"], measured["llama.cpp"])
        assert [float(number) for number in numbers] == [round(expected[0], 2), *(round(p, 4) for p in expected[1:])]


def test_each_row_of_the_readme_stands_in_one_table_of_the_measurements():
    tables = [set(re.findall(r"[\d,.]*\d", table)) for table in re.split(r"\n(?!\|)", read("measurements.md"))]
    rows = re.findall(r"^\| (?:H200|2 cores).*?\|(.*)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(rows) > 4
    for row in rows:
        assert any(set(re.findall(r"[\d,.]*\d", row)) <= table for table in tables), row


@pytest.mark.parametrize(
    "path",
    [path for folder in (".", "docs", "bench", "bench/notes") for path in sorted((ROOT / folder).glob("*.md"))],
    ids=lambda path: path.name,
)
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text())
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


def test_every_script_that_makes_fixtures_is_in_their_table():
    directory = ROOT / "tests" / "make_fixtures"
    described = (directory / "README.md").read_text()
    assert [path.stem for path in directory.glob("*.py") if f"`{path.stem}`" not in described] == []


def test_every_target_of_make_explains_itself():
    makefile = (ROOT / "Makefile").read_text()
    named = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split()
    assert sorted(named) == sorted(re.findall(r"^([a-z-]+):.*  ## \w", makefile, re.MULTILINE))


def test_every_extra_is_described():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = read("install.md").partition("| extra | brings |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(extras) - {"dev"}
