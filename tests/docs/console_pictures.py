"""Writes the pictures of docs/console.md: pages of a made site in Chromium, and what is in them as text."""

import json
import tempfile
from pathlib import Path

from cloud.console.console_pages import ACCESS, OUTLINE, PICTURES, USERS, show_plain
from fogline_lab.browser import BrowserWindow, chromium
from fogline_lab.console_site import ConsoleSite
from fogline_lab.credentials.authority_folder import PASSWORD
from fogline_lab.kafka_broker import KafkaBroker

PLACE = Path(__file__).parents[2] / "docs" / "pictures"
FILE = PLACE / "console.json"
"""The headings, labels and buttons of each page, which a test compares."""


async def _fill(site: ConsoleSite) -> None:
    show_plain(site)


def main() -> None:
    """Write them."""
    outlines = {}
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder)) as kafka:
        place = Path(folder) / "site"
        place.mkdir()
        with ConsoleSite(kafka.bootstrap, "acme", place, USERS, ACCESS) as site, chromium() as browser:
            site.run(_fill(site))
            window = BrowserWindow(browser, site.url, width=1100, height=760)
            window.log_in("root", PASSWORD)
            for name, address in PICTURES.items():
                window.page.goto(address)
                if window.page.locator("figure[data-readings]").count():
                    window.page.locator("figure canvas").wait_for()
                outlines[name] = window.page.evaluate(OUTLINE)
                window.page.screenshot(path=PLACE / f"console-{name}.png")
            window.close()
    FILE.write_text(json.dumps(outlines, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
