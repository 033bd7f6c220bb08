"""Make the pictures of the handbook in docs/pictures: the page of `pumice serve` in three widths, and `pumice chat`.

    .venv/bin/python -m pip install pyte && .venv/bin/python tools/pictures.py

Requires chromium, which also renders the terminal. The page's model is scripted (tests/scripted_server.py), the
terminal's is the demo model.
"""

import fcntl
import html
import os
import pty
import select
import shutil
import struct
import sys
import termios
import time
from pathlib import Path

import pyte
from playwright.sync_api import Browser, ViewportSize, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from scripted_server import scripted  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SIZES: dict[str, ViewportSize] = {
    "": {"width": 1180, "height": 780},
    "-tablet": {"width": 768, "height": 780},
    "-phone": {"width": 390, "height": 780},
}
"""Sizes of the page's pictures, by the part of the file's name."""
COLUMNS, LINES = 88, 22
DIM, GREY = b"\x1b[2m", b"\x1b[90m"  # pyte does not support the first
QUIET_SECONDS = 3.0  # seconds without output after which the terminal waits for input
COLOURS = {
    "default": "#ebe7e0",
    "black": "#8f887d",
    "red": "#f2978f",
    "green": "#a9c77d",
    "brown": "#e3b778",
    "blue": "#86bbe0",
    "magenta": "#c3a6e8",
    "cyan": "#8fcfc4",
    "white": "#ebe7e0",
}
STYLE = """
body { margin: 0; padding: 18px 22px; background: #1a1917; color: #ebe7e0; width: fit-content; }
pre { margin: 0; font: 14px/1.5 "JetBrains Mono", "DejaVu Sans Mono", monospace; }
"""


class Terminal(pyte.Screen):
    """The screen of a program that receives typed input."""

    def __init__(self, *command: str) -> None:
        super().__init__(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self)
        process, self._file = pty.fork()
        if process == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(command[0], command)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._wait()

    def write_process_input(self, data: str) -> None:
        """Send a terminal's replies, such as the cursor position, to the program."""
        os.write(self._file, data.encode())

    def type(self, text: str) -> None:
        for character in text:
            os.write(self._file, character.encode())
            time.sleep(0.01)
        self._wait()

    def _wait(self) -> None:
        """Wait until the output is quiet."""
        timeout = 10 * QUIET_SECONDS
        while select.select([self._file], [], [], timeout)[0]:
            self._stream.feed(os.read(self._file, 1 << 16).replace(DIM, GREY))
            timeout = QUIET_SECONDS

    def markup(self) -> str:
        shown = range(self.cursor.y + 1)
        lines = ["".join(self._cell(self.buffer[y][x]) for x in range(COLUMNS)) for y in shown]
        return f"<!doctype html><style>{STYLE}</style><pre>" + "\n".join(lines) + "</pre>"

    @staticmethod
    def _cell(cell: pyte.screens.Char) -> str:
        colour = COLOURS.get(cell.fg.removeprefix("bright"), f"#{cell.fg}")
        weight = "; font-weight: 700" if cell.bold else ""
        return f'<span style="color: {colour}{weight}">{html.escape(cell.data)}</span>'


def picture_page(browser: Browser, scheme: str) -> None:
    with scripted() as server:
        page = browser.new_page(viewport=SIZES[""], color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(server.url)
        for text in ("What is the weather in Reykjavík?", "How do I read a large file in Python?"):
            page.get_by_role("button", name="New conversation").click()
            page.get_by_label("Message", exact=True).fill(text)
            page.get_by_label("Send", exact=True).click()
            page.locator("article[aria-busy=false]").wait_for()
        page.mouse.move(0, 0)
        for name, size in SIZES.items():
            page.set_viewport_size(size)
            page.wait_for_timeout(500)
            page.screenshot(path=PICTURES / f"page{name}-{scheme}.png")
        page.close()


def picture_terminal(browser: Browser) -> None:
    terminal = Terminal(str(ROOT / ".venv/bin/pumice"), "chat", "--stats", "--temp", "0.3", "--seed", "5")
    terminal.type("Once upon a time there was a fox who had lost her kite.\r")
    page = browser.new_page(viewport={"width": 800, "height": 600}, device_scale_factor=1.5)
    page.set_content(terminal.markup())
    page.locator("body").screenshot(path=PICTURES / "chat.png")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            picture_page(browser, scheme)
        picture_terminal(browser)
        browser.close()


if __name__ == "__main__":
    main()
