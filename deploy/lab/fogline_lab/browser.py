"""Debian's Chromium, driven by Playwright. No browser is downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, Request, sync_playwright

from fogline.errors import Misconfigured

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
LIMIT_MS = 60_000
SERIOUS = ("serious", "critical")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the system's browser without a window, for the length of a block. Raises `Misconfigured` if there is none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise Misconfigured("there is no Chromium: run deploy/setup/setup.sh tests, or apt-get install chromium")
    # Signals are those of the tests; the sandbox of Chromium does not run as root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=arguments, handle_sigint=False, handle_sigterm=False, handle_sighup=False
        )
        try:
            yield browser
        finally:
            browser.close()


class BrowserWindow:
    """A page in a browser of its own cookies. `faults`: errors of scripts, refusals of the policy, foreign requests."""

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1280, height: int = 900, theme: str = "light", scripts: bool = True
    ) -> None:
        self.faults: list[str] = []
        self._host = urlsplit(url).netloc
        self._context: BrowserContext = browser.new_context(
            base_url=url,
            ignore_https_errors=True,
            viewport={"width": width, "height": height},
            color_scheme=theme,  # type: ignore[arg-type]  # "light" or "dark"
            timezone_id="Asia/Kolkata",
            java_script_enabled=scripts,
        )
        self._context.set_default_timeout(LIMIT_MS)
        self.page: Page = self._context.new_page()
        self.page.on("request", self._requested)
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("console", lambda said: self.faults.append(f"console: {said.text}") if _is_fault(said) else None)
        self.page.on("dialog", self._asked)

    def log_in(self, name: str, password: str) -> None:
        """Log a user in by the form."""
        self.page.goto("/console/login")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.follow(self.page.get_by_role("button", name="Log in"))
        self.page.wait_for_url(lambda url: "/login" not in url)

    def follow(self, leading: Locator) -> None:
        """Click what leads to another page, and wait for that: what is looked for next must not be found on this one."""
        with self.page.expect_navigation():
            leading.click()

    def axe(self, source: str) -> list[str]:
        """Return the serious findings of axe-core, whose script is `source`, on the page as it is."""
        # Evaluated by the debugger: the page's own policy runs no script of another origin.
        found: list[dict[str, Any]] = self.page.evaluate(
            source + "; axe.run(document, {resultTypes: ['violations']}).then(results => results.violations)"
        )
        return [f"{each['id']}: {_targets(each)}: {each['help']}" for each in found if each["impact"] in SERIOUS]

    def close(self) -> None:
        """Close it."""
        self._context.close()

    def _asked(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if urlsplit(request.url).netloc != self._host:
            self.faults.append(f"foreign request: {request.url}")


def _is_fault(said: Any) -> bool:
    """Return True for an error that a page's console says, but not for a status that the page itself shows."""
    return said.type == "error" and "Failed to load resource" not in said.text


def _targets(finding: dict[str, Any]) -> str:
    return ", ".join(str(target) for node in finding["nodes"] for target in node["target"])[:500]
