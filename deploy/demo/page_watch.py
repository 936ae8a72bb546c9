"""Looks at the operator's page as a browser does, so that the demo can tell how soon it shows a kill."""

import asyncio
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from typing import Final

from demo.certificates import PASSWORD, USER
from demo.plan import kind
from demo.workspace import Workspace
from fogline_cloud.console.live_pages import EVERY_S

LIMIT_S: Final = 10.0
"""A kill that the page does not show for so long is a problem."""
_ANSWER_S: Final = 10.0
_TOKEN: Final = re.compile(r'name="csrf" value="([^"]+)"')


class PageWatch:
    """One visitor, who is logged in and has the page of the line open. `run` asks for it again as the page itself does."""

    def __init__(self, workspace: Workspace) -> None:
        self._url = f"http://127.0.0.1:{workspace.ports.http}"
        self._password = (workspace.folder / PASSWORD).read_text("utf-8") if workspace.secure else ""
        self._open = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar())).open
        self._text = ""
        self._is_new = asyncio.Event()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            self._text = await asyncio.to_thread(self._look)
            self._is_new.set()
            self._is_new = asyncio.Event()
            await asyncio.sleep(EVERY_S)

    async def seen_s(self, victim: str) -> float | None:
        """Wait until the page shows that a part is not there. Return how long that took, None after `LIMIT_S`."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(LIMIT_S):
                while not shows(self._text, victim):
                    await self._is_new.wait()
        except TimeoutError:
            return None
        return time.monotonic() - began

    def _look(self) -> str:
        try:
            text = self._get("/console/parts/line?page=demo")
            if 'id="line"' not in text:
                self._log_in()
                text = self._get("/console/parts/line?page=demo")
        except (OSError, urllib.error.URLError):
            return ""
        return text

    def _log_in(self) -> None:
        found = _TOKEN.search(self._get("/console/login"))
        fields = {"csrf": found[1] if found else "", "name": USER, "password": self._password}
        data = urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(f"{self._url}/console/login", data, {"Origin": self._url})  # noqa: S310 - http
        self._open(request, timeout=_ANSWER_S).close()

    def _get(self, path: str) -> str:
        with self._open(f"{self._url}{path}", timeout=_ANSWER_S) as response:
            text: str = response.read().decode()
            return text


def shows(page: str, victim: str) -> bool:
    """Return True if the page of the line shows that a part is not there."""
    match kind(victim):
        case "gateway":
            return f"{victim} is not connected" in page
        case "bridge":
            return "no bridge answers" in page or "the bridge on this machine is not there" in page
    return "the flow does not run" in page
