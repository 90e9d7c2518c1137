"""A page whose errors are collected, and what tests do with one."""

from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Error, Page, Request

REFUSALS: Final = ("status of 400", "status of 404", "status of 405", "status of 409")
"""A browser logs every answer of 4xx. A refusal is an answer, not a failure of the page."""


class Watched:
    """A page with its problems."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self._origin = origin
        page.on("console", self._said)
        page.on("pageerror", self._failed)
        page.on("request", self._requested)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _is_refusal(message.text):
            self.problems.append(f"{self.page.url}: {message.text}")

    def _failed(self, error: Error) -> None:
        self.problems.append(f"{self.page.url}: {error.message}")

    def _requested(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._origin:
            self.problems.append(f"{self.page.url} asks for {request.url}")


def _is_refusal(text: str) -> bool:
    return any(words in text for words in REFUSALS)


def settled(page: Page) -> None:
    """Wait until all parts of a page have been loaded."""
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-part]')].every("
        "part => !part.hasAttribute('aria-busy') && !part.querySelector(':scope > .late'))"
    )


def overflows(page: Page) -> bool:
    """True if the page is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))
