"""The operator's page in Debian's Chromium: each page by eye, keyboard and screen reader, and with hostile names."""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from cloud.console.console_pages import (
    ACCESS,
    AXE,
    DEVICE,
    FORGED,
    MARK,
    MAY,
    OUTLINE,
    PICTURES,
    PLAIN,
    REFUSED,
    USERS,
    addresses,
    fill,
)
from fogline_cloud.authority.signed_document import read_signed
from fogline_cloud.console.console import Console
from fogline_cloud.console.pages.flow_page import MAX_WAITING
from fogline_cloud.flows.orders.redrive_orders import RedriveEnd, RedriveOrders
from fogline_cloud.ledger.proof_document import KIND, decode_document
from fogline_lab.browser import BrowserWindow, chromium
from fogline_lab.console_site import ConsoleSite
from fogline_lab.credentials.authority_folder import PASSWORD
from rules.source import ROOT

IDENTIFIERS_ONLY = {"/console", "/console/line", "/console/parts/line", "/console/gateways"}
"""Pages that show nothing but numbers, and names that are checked at every border."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def site(kafka, tmp_path_factory) -> Iterator[ConsoleSite]:
    folder = tmp_path_factory.mktemp("console")
    with ConsoleSite(kafka.bootstrap, f"console{os.getpid()}", folder, USERS, ACCESS) as made:
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


def visitor(site, user: str) -> tuple[httpx.Client, str]:
    """A client in which a user is logged in, and the token of its forms."""
    client = httpx.Client(base_url=site.url, verify=False, headers={"origin": site.url}, timeout=60)  # its own authority
    login = {"csrf": token_in(client.get("/console/login").text), "name": user, "password": PASSWORD}
    assert client.post("/console/login", data=login).status_code == 303
    return client, token_in(client.get("/console/devices").text)


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


def token_in(page: str) -> str:
    found = re.search('name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def pages(site) -> list[str]:
    return addresses(Console(site.line.cloud, site.api.context))


def test_log_in_by_the_form_leads_to_the_page_that_was_asked_for_and_log_out_ends_it(site, browser):
    window = BrowserWindow(browser, site.url)
    page = window.page
    page.goto("/console/devices?name=lamp")
    assert "/console/login" in page.url
    page.get_by_label("Name").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    assert "wrong user name or password" in page.get_by_role("alert").inner_text()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    assert page.url.endswith("/console/devices?name=lamp")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.goto("/console/devices")
    assert "/console/login" in page.url
    assert window.faults == []
    window.close()


@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", 1280),
        ("dark", 390),
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
            assert window.page.locator("h1").count() == 1, f"{address} has no one heading"
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


def prove(page) -> None:
    """Ask for the proof of the day on which the tables have a gap, and wait for it."""
    page.goto("/console/proof")
    page.get_by_label("Day (UTC)").fill(f"{datetime.now(UTC) - timedelta(hours=2):%Y-%m-%d}")
    page.get_by_role("button", name="Prove").click()
    page.locator("#proof", has_text="COMPLETE").wait_for(timeout=60_000)


def test_a_proof_is_made_as_one_waits_and_handed_over_as_a_signed_document(site, window):
    """The tables of this site have rows that no gateway sent: the page names them, and the document says the same."""
    prove(window.page)
    assert "INCOMPLETE" in window.page.locator("#proof").inner_text()
    with window.page.expect_download() as handed:
        window.page.get_by_role("link", name="Signed document to hand over").click()
    text = handed.value.path().read_text("ascii").strip()
    authority = x509.load_pem_x509_certificate(Path(site.line.cloud.operator.tls.ca).read_bytes())
    signed = read_signed(text, KIND, [authority])
    proof = decode_document(signed.body)
    assert (signed.signer, proof.tenant, proof.complete) == ("bridge api", site.line.tenant, False)
    shown = window.page.locator("#proof li").all_inner_texts()
    assert shown == [each.text for each in proof.doubts]
    assert shown
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


def test_a_command_goes_there_and_its_answer_comes_back(window):
    page = window.page
    page.goto(f"/console/devices/{DEVICE}")
    page.get_by_role("link", name="Send switch").click()
    page.get_by_label("on (may be left out)").select_option("yes")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/console/commands/*")
    page.locator("#life", has_text="SUCCEEDED").wait_for()
    assert '"ok": true' in page.get_by_role("region", name="State of the command").inner_text()
    assert page.get_by_role("button", name="Cancel this command").count() == 0
    page.goto("/console/commands?device=lamp-1&state=SUCCEEDED")
    assert page.get_by_role("row").count() >= 2
    assert window.faults == []


def test_a_command_that_waits_is_cancelled_and_the_page_says_so_by_itself(site, window):
    page = window.page
    page.goto("/console/devices/lamp-2/send")
    page.get_by_label("Command").fill("dim")
    page.get_by_label("Arguments (JSON)").fill("{")
    page.get_by_role("button", name="Send").click()
    assert "is not JSON" in page.get_by_role("alert").inner_text()
    page.get_by_label("Arguments (JSON)").fill('{"level": 3}')
    page.get_by_label("Time to live in seconds").fill("300")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/console/commands/*")
    life = page.locator("#life")
    assert '"level": 3' in life.inner_text()
    other = BrowserWindow(window.page.context.browser, site.url)
    other.log_in("root", PASSWORD)
    other.page.goto(page.url)
    other.page.get_by_role("button", name="Cancel this command").click()
    page.locator("#life", has_text="CANCELLED").wait_for()
    assert "cancelled by client" in life.inner_text()
    assert (window.faults, other.faults) == ([], [])
    other.close()


def test_a_plot_is_drawn_from_the_table(window):
    page = window.page
    page.goto(f"/console/devices/{DEVICE}?metric=temperature&span=7d")
    page.locator("figure canvas").wait_for()
    assert page.get_by_role("row", name="temperature").first.inner_text().startswith("temperature\t24.75\tCel")
    assert window.faults == []


def test_coverage_says_how_many_devices_of_a_type_were_heard_yesterday(window):
    page = window.page
    page.goto("/console/coverage?type=meter")
    item = page.get_by_role("listitem").filter(has_text="type meter")
    assert "Of 6 devices of type meter, 4 were heard." in item.inner_text()
    with page.expect_download() as handed:
        page.get_by_role("link", name="All of them, as CSV").click()
    yesterday = (datetime.now(UTC).date() - timedelta(days=1)).isoformat()
    assert f"{yesterday},meter,6,4,0.6667,4" in handed.value.path().read_text("utf-8").splitlines()
    item.get_by_role("link").click()
    assert [each.inner_text() for each in page.locator("tbody th").all()] == ["meter-6"]
    assert window.faults == []


def test_gateways_are_listed_with_their_connection_and_their_devices(window):
    page = window.page
    page.goto("/console/gateways")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="gw-1"))
    assert "connected" in row.inner_text()
    page.get_by_label("Which").select_option("not connected")
    page.get_by_role("button", name="Search").click()
    assert page.get_by_role("rowheader", name="gw-1").count() == 0
    page.goto("/console/gateways?name=gw-1")
    page.get_by_role("row").nth(1).get_by_role("link").click()
    page.wait_for_url("**/console/devices?gateway=gw-1")
    assert page.get_by_role("link", name="lamp-2").count() == 1
    assert window.faults == []


def test_gap_of_a_device_is_explained_and_the_ledger_says_what_it_knows(window):
    page = window.page
    page.goto(f"/console/devices/{PLAIN}")
    row = page.get_by_role("region", name="Gaps of its gateways").get_by_role("row", name="gw-2")
    assert "expired: the event's message expiry passed while it waited" in row.inner_text()
    assert "expired 5 s before it was sent" in row.inner_text()
    assert "this one" in row.inner_text()
    assert "You have not asked it about this device." in page.inner_text("main")
    page.get_by_role("button", name="Prove that yesterday is complete").click()
    page.locator("#proof", has_text="COMPLETE").wait_for(timeout=60_000)
    page.goto(f"/console/devices/{PLAIN}")
    assert re.search(r"COMPLETE: .*, on \d{4}-\d\d-\d\d \(UTC\)", page.inner_text("main"))
    assert window.faults == []


def test_slow_parser_and_what_it_could_not_read_are_parsed_again_as_one_waits(site, window):
    page = window.page
    page.goto("/console/flow")
    assert "tardy slow" in page.get_by_role("region", name="Times of parsers").inner_text()
    row = page.get_by_role("region", name="Counts").get_by_role("row").filter(has_text="tardy")
    row.get_by_role("button", name="Parse again").click()
    orders = page.locator("#redrives")
    text = "outcome slow, reason timeout, parser tardy, since "
    item = orders.get_by_role("listitem").filter(has_text=text)
    assert "root (password)" in item.inner_text()
    assert "It waits for the flow" in item.inner_text()
    stored = RedriveOrders(site.line.cloud)
    (order,) = [each for each in stored.waiting() if each.text.startswith(text)]
    stored.end(order.number, RedriveEnd(at_ms=1, selected=1, changed=1, outcomes={"slow -> ok": 1}))
    item.filter(has_text="Done: 1 parsed again, 1 are different now (slow -> ok: 1).").wait_for()
    page.goto("/console/audit?about=REDRIVE")
    assert text in page.get_by_role("row").filter(has_text="REDRIVE ALLOWED").first.inner_text()
    assert window.faults == []


def test_so_many_orders_to_parse_again_wait_and_no_more(site):
    orders = RedriveOrders(site.line.cloud)
    root, csrf = visitor(site, "root")
    form = {"csrf": csrf, "outcome": "dead", "reason": "of nobody", "parser": "", "span": "1d"}
    statuses = [root.post("/console/flow/redrive", data=form).status_code for _ in range(MAX_WAITING + 1)]
    assert (statuses[-1], len(orders.waiting())) == (503, MAX_WAITING)
    for each in orders.waiting():
        orders.end(each.number, RedriveEnd(at_ms=1))
    root.close()


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
    page.get_by_role("button", name="Search").click()
    assert page.get_by_role("link", name=DEVICE).count() == 1
    assert " UTC" in page.locator("time").first.inner_text()
    window.close()
