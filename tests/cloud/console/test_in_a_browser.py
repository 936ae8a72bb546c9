"""The operator's page in Debian's Chromium: each page by eye, keyboard and screen reader, and with hostile names."""

import json
import re

import pytest
from playwright.sync_api import expect

from cloud.console.console_pages import (
    AXE,
    DEVICE,
    FORGED,
    MARK,
    MAY,
    OUTLINE,
    PICTURES,
    REFUSED,
    USERS,
    addresses,
    prove,
    visitor,
)
from fogline_cloud.console.console import Console
from fogline_lab.browser import BrowserWindow
from fogline_lab.credentials.authority_folder import PASSWORD
from rules.source import ROOT

IDENTIFIERS_ONLY = {"/console", "/console/line", "/console/parts/line", "/console/gateways", "/console/rollouts/new"}
"""Pages that show nothing but numbers, and names that are checked at every border."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("user", USERS)
def test_what_a_user_may_not_do_is_not_offered_and_refused_when_forged(site, user):
    root, csrf = visitor(site, "root")
    waiting = {"csrf": csrf, "name": "switch", "ttl_s": "300", "durable": "yes"}
    command = root.post("/console/devices/lamp-2/send", data=waiting).headers["location"]
    proposed = root.post("/console/devices/lamp-2/send", data={**waiting, "name": "arm"}).headers["location"]
    client, csrf = visitor(site, user)
    offered = client.get(f"/console/devices/{DEVICE}").text
    for name in ("switch", "turn"):
        assert (f"send?name={name}" in offered) == (name in MAY[user])
    assert ("<h2>Events</h2>" in offered) == (user == "root")
    assert (DEVICE in client.get("/console/devices").text) == (f"see {DEVICE}" in MAY[user])
    assert ("Cancel this command" in client.get(command).text) == ("cancel" in MAY[user])
    assert ("Approve this command" in client.get(proposed).text) == ("approve" in MAY[user])
    may_roll_out = "Begin a roll-out" in client.get("/console/rollouts").text
    assert may_roll_out == ("form of a roll-out" in MAY[user])
    for page in ("audit", "flow", "line", "gateways", "coverage"):
        assert (f"/console/{page}" in offered) == (page in MAY[user])
    statuses = {}
    for what, (method, path, fields) in FORGED.items():
        form = {"csrf": csrf, **fields} if method == "POST" else None
        address = path.replace("{id}", command.rpartition("/")[2]).replace("{proposed}", proposed.rpartition("/")[2])
        statuses[what] = client.request(method, address, data=form).status_code
    assert {what for what, status in statuses.items() if status not in REFUSED} == MAY[user], statuses
    assert set(statuses.values()) <= {200, 303, *REFUSED}
    client.close()
    root.close()


def pages(site) -> list[str]:
    return addresses(Console(site.line.cloud, site.api.context))


def test_log_in_by_the_form_leads_to_the_page_that_was_asked_for_and_log_out_ends_it(site, browser):
    window = BrowserWindow(browser, site.url)
    page = window.page
    page.goto("/console/devices?name=lamp")
    assert "/console/login" in page.url
    page.get_by_label("Name").fill("alice")
    page.get_by_label("Password").fill("wrong")
    window.follow(page.get_by_role("button", name="Log in"))
    assert "wrong user name or password" in page.get_by_role("alert").inner_text()
    page.get_by_label("Password").fill(PASSWORD)
    window.follow(page.get_by_role("button", name="Log in"))
    assert page.url.endswith("/console/devices?name=lamp")
    assert page.evaluate("document.cookie") == ""
    window.follow(page.get_by_role("button", name="Log out"))
    page.goto("/console/devices")
    assert "/console/login" in page.url
    assert window.faults == []
    window.close()


@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("dark", 390),
        pytest.param("light", 1280, marks=pytest.mark.slow),
        pytest.param("dark", 1280, marks=pytest.mark.slow),
        pytest.param("light", 390, marks=pytest.mark.slow),
    ],
)
def test_every_page_is_usable_in_both_themes_at_both_widths(site, browser, theme, width):
    """Without serious findings of axe, a request to elsewhere, an error of a script, or a line that is too wide."""
    source = AXE.read_text("utf-8")
    window = BrowserWindow(browser, site.url, width=width, theme=theme)
    window.page.goto("/console/login")
    findings = {"/console/login": window.axe(source)}
    window.log_in("root", PASSWORD)
    for address in pages(site):
        if address not in (*findings, "/console") and "/parts/" not in address:  # which leads to another one
            window.page.goto(address)
            findings[address] = window.axe(source)
            wide = window.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            findings[address] += [f"{wide} pixels too wide"] if wide > 0 else []
            expect(window.page.locator("h1"), f"{address} has no one heading").to_have_count(1)
    assert {address: found for address, found in findings.items() if found} == {}
    assert window.faults == []
    window.close()


def test_hostile_names_are_text_on_every_page(site, window):
    page = window.page
    prove(page)
    for address in pages(site):
        page.goto(address)
        if "/login" in address:
            continue
        assert page.evaluate("document.querySelectorAll('body script, body img, body iframe, body [onerror]').length") == 0, (
            address
        )
        text = page.evaluate("document.body.textContent")
        assert (MARK in text) == (address not in IDENTIFIERS_ONLY), f"{address} does not show what the devices sent"
        assert CONTROL.findall(text) == [], f"{address} shows characters that do not print"
        assert len(text) < 60_000, f"{address} shows all of a long text"
    assert window.faults == []


def test_a_device_is_found_by_keyboard_alone(window):
    page = window.page
    page.goto("/console/devices")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "name"
    page.keyboard.type(DEVICE)
    page.keyboard.press("Enter")
    page.wait_for_url("**/devices?name=*")
    page.get_by_role("link", name=DEVICE).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/devices/{DEVICE}")


def test_times_are_those_of_the_reader_with_utc_beside_them(window):
    window.page.goto("/console/devices")
    shown = window.page.locator("time").first.inner_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", shown)
    here, utc = re.findall(r" (\d\d):(\d\d):", shown)
    assert (int(here[0]) * 60 + int(here[1]) - int(utc[0]) * 60 - int(utc[1])) % 1440 == 330  # Asia/Kolkata is UTC+5:30


def test_pages_have_the_structure_that_their_pictures_were_made_of(window):
    """`make docs` makes both anew."""
    outlines = json.loads((ROOT / "docs" / "pictures" / "console.json").read_text("utf-8"))
    for name, address in PICTURES.items():
        window.page.goto(address)
        assert (name, window.page.evaluate(OUTLINE)) == (name, outlines[name])
        assert (ROOT / "docs" / "pictures" / f"console-{name}.png").exists()


def test_the_page_works_without_scripts(site, browser):
    window = BrowserWindow(browser, site.url, scripts=False)
    window.log_in("root", PASSWORD)
    page = window.page
    page.goto("/console/devices")
    page.get_by_label("Name").fill(DEVICE)
    window.follow(page.get_by_role("button", name="Search"))
    expect(page.get_by_role("link", name=DEVICE)).to_have_count(1)
    assert " UTC" in page.locator("time").first.inner_text()
    window.close()
