"""Browsers with the page of the line open, as far as the API sees them: each asks for the part that renews itself.

    python tests/bench/page_readers.py URL PAGES

Prints one JSON line when all pages are open. After a line on stdin it ends, and prints how many answers came, and how many of
them were no page.
"""

import asyncio
import json
import re
import sys
from collections import Counter

import httpx

from fogline_cloud.api.logins import WITHOUT_PASSWORD
from fogline_cloud.console.live_pages import EVERY_S, MAX_OF_SESSION

_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')
_PART = re.compile(r'hx-get="([^"]+)"')


async def read(url: str, pages: int) -> None:
    """Open the pages, and keep them open."""
    answers: Counter[str] = Counter()
    sessions = [await logged_in(url) for _ in range(-(-pages // MAX_OF_SESSION))]
    tasks = []
    for number in range(pages):
        http = sessions[number // MAX_OF_SESSION]
        found = _PART.search((await http.get("/console/line")).text)
        assert found is not None, "a page does not renew itself"
        tasks.append(asyncio.create_task(renew(http, found[1], number / pages, answers)))
    print(json.dumps({"pages": len(tasks)}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task in tasks:
        task.cancel()
    print(json.dumps(answers), flush=True)


async def logged_in(url: str) -> httpx.AsyncClient:
    """A session of the user who sends the commands: the bridge sends the replies of users without a proof to one of them."""
    http = httpx.AsyncClient(base_url=url, headers={"origin": url}, timeout=60)
    token = _TOKEN.search((await http.get("/console/login")).text)
    assert token is not None
    login = await http.post("/console/login", data={"csrf": token[1], "name": WITHOUT_PASSWORD, "password": ""})
    assert login.status_code == 303, login.text
    return http


async def renew(http: httpx.AsyncClient, address: str, share: float, answers: Counter[str]) -> None:
    """Ask as htmx does; pages do not ask all at once."""
    await asyncio.sleep(share * EVERY_S)
    while True:
        answer = await http.get(address, headers={"hx-request": "true"})
        is_page = answer.status_code == 200 and _PART.search(answer.text) is not None
        answers["pages" if is_page else "others"] += 1
        await asyncio.sleep(EVERY_S)


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], int(sys.argv[2])))
