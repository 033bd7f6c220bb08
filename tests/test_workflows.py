"""Workflows: what a job downloads, a job that it waits for has uploaded."""

from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOWS = sorted((Path(__file__).parents[1] / ".github" / "workflows").glob("*.yml"))


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(path.read_text())["jobs"]


def steps(job: dict[str, Any], action: str) -> list[dict[str, Any]]:
    """Return what the steps with an action are given."""
    return [step.get("with", {}) for step in job["steps"] if step.get("uses", "").startswith(f"actions/{action}@")]


def before(name: str, all_jobs: dict[str, dict[str, Any]]) -> set[str]:
    """Return the jobs that a job waits for."""
    needs = all_jobs[name].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*(before(each, all_jobs) for each in direct))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_artifacts_are_downloaded_by_name(path: Path) -> None:
    """Without one, everything is: also the documentation, and records of builds that actions upload on their own."""
    all_jobs = jobs(path)
    for name, job in all_jobs.items():
        uploaded = {
            given["name"] for other in before(name, all_jobs) for given in steps(all_jobs[other], "upload-artifact")
        }
        for given in steps(job, "download-artifact"):
            assert given.get("name") in uploaded, f"job {name}"


def test_what_is_published_is_released() -> None:
    (ci,) = (jobs(path) for path in WORKFLOWS if path.name == "ci.yml")
    published, released = (
        {given["name"] for given in steps(ci[job], "download-artifact")} for job in ("publish", "release")
    )
    assert published == released == {"dist", "platform-wheels", "sbom"}
