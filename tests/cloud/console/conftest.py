"""One site for all tests of a module, because it takes seconds to start; and the browser.

Both end with the module. While the browser runs, no other event loop can run in this thread; the site's gateway and bridge
are of this process: other tests would count their connections.
"""

import os
from collections.abc import Iterator

import pytest

from cloud.console.console_pages import ACCESS, USERS, fill, make_rollout
from fogline_lab.browser import BrowserWindow, chromium
from fogline_lab.console_site import ConsoleSite
from fogline_lab.credentials.authority_folder import PASSWORD


@pytest.fixture(scope="module")
def site(kafka, tmp_path_factory) -> Iterator[ConsoleSite]:
    folder = tmp_path_factory.mktemp("console")
    site = ConsoleSite(kafka.bootstrap, f"console{os.getpid()}", folder, USERS, ACCESS)
    make_rollout(site)
    with site as made:
        made.run(fill(made))
        yield made


@pytest.fixture(scope="module")
def browser():
    with chromium() as made:
        yield made


@pytest.fixture
def window(site, browser):
    """A window in which root is logged in."""
    made = BrowserWindow(browser, site.url)
    made.log_in("root", PASSWORD)
    yield made
    made.close()
