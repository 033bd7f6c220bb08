"""The page in a browser without windows: Debian's chromium, driven by playwright."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from waiting import PATIENCE, wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect
# First the shell, which is the engine without windows: the page takes half of the processor's time there.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
MOST = 1000 * PATIENCE  # milliseconds
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (.ci/page installs it)")


@contextmanager
def started() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        microphone = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]  # beeps, is allowed
        args = ["--no-sandbox", *microphone]  # the first for root
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=args, timeout=MOST)
        expect.set_options(timeout=MOST)
        yield browser
        browser.close()


@contextmanager
def profile(browser: "playwright.Browser", **options: Any) -> Iterator["playwright.BrowserContext"]:
    """Open a profile of the browser, which has nothing of others and waits as patiently as tests do."""
    with browser.new_context(**{"viewport": WIDE, **options}) as context:
        context.set_default_timeout(MOST)
        yield context


def opened(context: "playwright.BrowserContext", url: str) -> "playwright.Page":
    """A tab; what its console says of errors, those of the content security policy among them, is in ``problems``."""
    page = context.new_page()
    page.problems = []
    page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.goto(url)
    page.get_by_label("Message", exact=True).wait_for()
    return page


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


def say(page: "playwright.Page", text: str, waits: bool = True) -> None:
    answers = page.get_by_role("article", name="Answer")
    before = answers.count()
    page.get_by_label("Message", exact=True).fill(text)
    expect(page.get_by_label("Send", exact=True)).to_be_enabled()
    page.keyboard.press("Enter")
    expect(answers.nth(before)).to_be_attached()  # a tool's call and the answer after it are two
    if waits:
        expect(answers.last).to_have_attribute("aria-busy", "false")
        expect(page.get_by_role("status")).to_have_text(re.compile("complete|failed"))


def start_new(page: "playwright.Page") -> None:
    page.keyboard.press("Control+Shift+O")
    expect(page.get_by_text("What is on your mind?")).to_be_visible()


def hold(page: "playwright.Page", pattern: str | re.Pattern[str]) -> Callable[[], "playwright.Route"]:
    """Hold the next request for an address. The result waits until the page has made it, and gives it.

    Later ones go on, by the same handler: while Playwright takes one away, it may not see a request.
    """
    held: list[playwright.Route] = []

    def take(route: "playwright.Route") -> None:
        if held:
            route.fallback()
        else:
            held.append(route)

    page.route(pattern, take)

    def taken() -> "playwright.Route":
        wait_until(lambda: page.wait_for_timeout(10) or held)
        return held[0]

    return taken


def answer(page: "playwright.Page") -> "playwright.Locator":
    return page.get_by_role("article", name="Answer").last


def run_command(page: "playwright.Page", name: str) -> None:
    page.keyboard.press("Control+k")
    page.get_by_label("Command or conversation").fill(name)
    page.keyboard.press("Enter")
