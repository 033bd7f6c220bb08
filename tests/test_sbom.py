"""The bill of materials names everything that is distributed, and is valid."""

import json
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.lock import ROOT

from imported_late import Late
from tools import sbom

schema, validation = Late("cyclonedx.schema"), Late("cyclonedx.validation.json")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("sbom") / "bom.json"
    assert sbom.main([str(path)]) == 0
    return path.read_text()


def names_of(text: str, prefix: str) -> set[str]:
    return {part["name"] for part in json.loads(text)["components"] if part["bom-ref"].startswith(prefix)}


def test_the_bill_is_valid(text):
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"library"', '"book"')) is not None


def test_every_dependency_is_in_the_bill(text):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["server"]]
    assert {canonicalize_name(Requirement(line).name) for line in wanted} <= names_of(text, "pypi:")


def test_every_part_states_its_licence(text):
    """Packages of other systems are not installed here, so that only their names are known."""
    without = {part["name"] for part in json.loads(text)["components"] if not part.get("licenses")}
    assert without <= {"colorama", "httpx2-jsfetch", "pywin32"}
