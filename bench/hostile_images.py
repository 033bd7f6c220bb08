"""Send damaged, odd and hostile image files to `pumice serve`, and report wrong answers and leaks.

    python bench/hostile_images.py [-n 1000] [--clients 2] [MODEL]

Writes JSON: answers by kind of file and status, those that are wrong, and memory, open files and threads of the
server's process before and after.
"""

import base64
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hostile_files import arguments_of, ask, report
from serve_process import serving

import pumice
from hostile_images import hostile


def main() -> None:
    arguments = arguments_of(__doc__, str(pumice.demo_model_path(vision=True)))
    with serving([arguments.model]) as (server, url):

        def send(seed: int) -> tuple[str, int, str]:
            file = hostile(seed)
            image = {"url": f"data:image/png;base64,{base64.b64encode(file[1]).decode()}"}
            return ask(url, file, {"type": "image_url", "image_url": image}, "image")

        report(send, server.pid, arguments.n, arguments.clients, n_warm_up=28)


if __name__ == "__main__":
    main()
