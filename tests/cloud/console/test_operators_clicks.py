"""An operator without documents: each of the daily tasks takes at most five clicks from the log-in page on."""

import re

import pytest
from playwright.sync_api import expect

from fogline_lab.browser import BrowserWindow
from fogline_lab.credentials.authority_folder import PASSWORD

MOST = 5


class Operator:
    """Somebody at the log-in page. Counts clicks; choosing from a list is one, typing is none."""

    def __init__(self, browser, url: str) -> None:
        self.window = BrowserWindow(browser, url)
        self.page = self.window.page
        self.clicks = 0
        self.page.goto("/console/login")
        self.page.get_by_label("Name").fill("root")
        self.page.get_by_label("Password").fill(PASSWORD)
        self.click("button", "Log in")

    def click(self, role: str, name: str) -> None:
        self.clicks += 1
        self.window.follow(self.page.get_by_role(role, name=name, exact=True).first)

    def choose(self, label: str, text: str) -> None:
        self.clicks += 1
        self.page.get_by_label(label).select_option(text)


@pytest.fixture
def operator(site, browser):
    made = Operator(browser, site.url)
    yield made
    assert made.window.faults == []
    made.window.close()
    assert made.clicks <= MOST


def test_silent_device_and_its_cause_are_found(operator):
    operator.click("link", "Devices")
    operator.choose("Silent for", "10 minutes")
    operator.click("button", "Search")
    operator.click("link", "meter-5")
    expect(operator.page.locator("main")).to_contain_text(re.compile("Its gateway gw-2 (has )?heard"))


def test_device_gets_a_command_and_its_answer_is_seen(operator):
    operator.page.get_by_label("Find a device").fill("lamp-1")
    operator.click("button", "Find")
    operator.click("link", "Send switch")
    operator.choose("on (may be left out)", "yes")
    operator.click("button", "Send")
    operator.page.locator("#life", has_text="SUCCEEDED").wait_for()


def test_yesterday_is_proven(operator):
    operator.click("link", "Proof")
    operator.click("button", "Prove")
    operator.page.locator("#proof", has_text="COMPLETE").wait_for(timeout=60_000)


def test_find_leads_to_what_looks_like_the_name_if_there_is_no_such_device(operator):
    operator.page.get_by_label("Find a device").fill("meter")
    operator.click("button", "Find")
    expect(operator.page.get_by_role("link", name="meter-1")).to_have_count(1)
