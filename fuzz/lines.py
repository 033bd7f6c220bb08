"""Lines of Pumice that an input is the first to reach, at almost no cost: Python 3.12 reports each line once."""

import sys
from types import CodeType

from fuzz import ROOT

_FOLDERS = (str(ROOT / "core"), str(ROOT / "plugins"))


class Lines:
    """Counts lines as they are reached for the first time; none before Python 3.12.

    Attributes:
        reached: number of lines so far.
    """

    def __init__(self) -> None:
        self.reached = 0
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "pumice-fuzz")
            monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._line)
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    def _line(self, code: CodeType, _: int) -> object:
        self.reached += code.co_filename.startswith(_FOLDERS)
        return sys.monitoring.DISABLE  # this line is not reported again
