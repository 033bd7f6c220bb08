"""The end of a run in a few lines: what ran, and what was skipped for which reason."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

REASONS = 7  # lines of reasons


def lines(ran: Iterable[str], skipped: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Yield the lines, for names of tests that ran and reports of those that were skipped."""
    folders = Counter("/".join(name.split("::")[0].split("/")[1:-1][:2]) or "tests" for name in ran)
    parts = ", ".join(f"{folder} {n:,}" for folder, n in folders.most_common(9))
    yield f"ran {folders.total():,} tests: {parts}" + (", ..." if len(folders) > 9 else "")
    reasons = Counter(_reason(report) for report in skipped)
    for reason, n in reasons.most_common(REASONS):
        yield f"skipped {n:,}: {reason}"
    if others := sum(n for _, n in reasons.most_common()[REASONS:]):
        yield f"skipped {others:,} for {len(reasons) - REASONS} other reasons (-rs shows all)"


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"\s+", " ", text.removeprefix("Skipped: "))[:110]
