"""A real Chromium, headless, where this machine has one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine; on Debian: apt install chromium")
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found, args=options)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page of a server, and whatever the browser has to complain of it."""

    def __init__(self, browser: Any, url: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        self.url, self.width = url, width
        self.context = browser.new_context(
            color_scheme="dark" if dark else "light", viewport={"width": width, "height": height}
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )

    def enter(self, token: str) -> float:
        """The first visit, as the command prints its address; when the first paint was, in ms."""
        self.page.goto(f"{self.url}/?token={token}")
        self.page.wait_for_selector("main[data-page]")
        return float(self.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))

    def open(self, address: str) -> None:
        self.page.goto(f"{self.url}/{address}")
        self.until("at => document.getElementById('main').dataset.page === at", address)
        if address.startswith(("#/events/", "#/batches/")):
            self.page.wait_for_selector("[data-again], .empty")

    def until(self, holds: str, arg: Any = None) -> None:
        """Until this function of JavaScript gives true. (Playwright's own waiting evaluates texts within the page,
        which its policy forbids.)"""
        for _ in range(1200):
            if self.page.evaluate(holds, arg):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"it does not come to {holds}: {self.text()}")

    def text(self) -> str:
        return str(self.page.inner_text("body"))

    def version(self) -> int:
        """What is said to be live."""
        self.until("() => /version \\d+/.test(document.getElementById('live').textContent)")
        return int(self.page.inner_text("#live").split("version ")[1].split()[0])

    def fits(self) -> bool:
        """Whether nothing sticks out on the right."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth") <= self.width)

    def close(self) -> None:
        self.context.close()
