"""``python -m pumice.process.prepared``: import what an engine needs, then become the engine of a launch.

The launch comes first in standard input; commands follow it. This process was started before a server's own
modules were imported, with the environment of a confined process. It opens no file of a user and starts no thread, and
confines itself before it reads a command. A launch of anything but an engine replaces the process.
"""

from __future__ import annotations

import gc
import os
import sys

from pumice.sandbox import end_numpy_threads
from pumice.sandbox.launch import module_command
from pumice.spawning.prepared import receive_launch


def main() -> int:
    gc.disable()  # until the model is loaded
    from pumice.process import worker
    from pumice.process.confinement import WORKER

    launch = receive_launch(0)
    if launch is None:
        return 0
    if launch.args != module_command("pumice.sandbox", WORKER) or not end_numpy_threads():
        os.execve(launch.args[0], launch.args, launch.env)
    os.environ.clear()
    os.environ.update(launch.env)
    from pumice.sandbox.__main__ import confine

    confine()
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
