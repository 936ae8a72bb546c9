"""What operators do on the page, in Debian's Chromium: commands, roll-outs, proofs, gaps, redrives, and lists of the fleet."""

import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from playwright.sync_api import expect

from cloud.console.console_pages import (
    DEVICE,
    PLAIN,
    prove,
    visitor,
)
from fogline_cloud.authority.signed_document import read_signed
from fogline_cloud.console.pages.flow_page import MAX_WAITING
from fogline_cloud.flows.orders.redrive_orders import RedriveEnd, RedriveOrders
from fogline_cloud.ledger.proof_document import KIND, decode_document
from fogline_lab.browser import BrowserWindow
from fogline_lab.credentials.authority_folder import PASSWORD


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


def test_a_command_goes_there_and_its_answer_comes_back(window):
    page = window.page
    page.goto(f"/console/devices/{DEVICE}")
    page.get_by_role("link", name="Send switch").click()
    page.get_by_label("on (may be left out)").select_option("yes")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/console/commands/*")
    page.locator("#life", has_text="SUCCEEDED").wait_for()
    assert '"ok": true' in page.get_by_role("region", name="State of the command").inner_text()
    expect(page.get_by_role("button", name="Cancel this command")).to_have_count(0)
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


def test_coverage_says_how_many_devices_of_a_type_were_heard_yesterday(window):
    page = window.page
    page.goto("/console/coverage?type=meter")
    item = page.get_by_role("listitem").filter(has_text="type meter")
    assert "Of 6 devices of type meter, 4 were heard." in item.inner_text()
    with page.expect_download() as handed:
        page.get_by_role("link", name="All of them, as CSV").click()
    yesterday = (datetime.now(UTC).date() - timedelta(days=1)).isoformat()
    assert f"{yesterday},meter,6,4,0.6667,4" in handed.value.path().read_text("utf-8").splitlines()
    window.follow(item.get_by_role("link"))
    expect(page.locator("tbody th")).to_have_text(["meter-6"])
    assert window.faults == []


def test_gateways_are_listed_with_their_connection_and_their_devices(window):
    page = window.page
    page.goto("/console/gateways")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="gw-1"))
    assert "connected" in row.inner_text()
    page.get_by_label("Which").select_option("not connected")
    window.follow(page.get_by_role("button", name="Search"))
    expect(page.get_by_role("rowheader", name="gw-1")).to_have_count(0)
    page.goto("/console/gateways?name=gw-1")
    page.get_by_role("row").nth(1).get_by_role("link").click()
    page.wait_for_url("**/console/devices?gateway=gw-1")
    expect(page.get_by_role("link", name="lamp-2")).to_have_count(1)
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


def test_part_that_stops_turns_red_by_itself_in_both_themes_at_both_widths(site, browser):
    windows = [BrowserWindow(browser, site.url, width=width, theme=theme) for width, theme in ((1280, "light"), (390, "dark"))]
    parts = []
    for window in windows:
        window.log_in("root", PASSWORD)
        window.page.goto("/console/line")
        parts.append(window.page.locator(".part", has=window.page.get_by_role("heading", name="Flow")))
        assert "does not run" not in parts[-1].inner_text()
    site.flow_door.close()
    colours = set()
    for part in parts:
        fault = part.locator("summary", has_text=f"the flow does not run: nothing listens at {site.flow_address}")
        fault.wait_for()
        fault.click()
        assert "Restart it" in part.inner_text()
        colours.add(fault.evaluate("each => getComputedStyle(each).color"))
        assert part.evaluate("each => each.classList.contains('broken')")
    assert colours == {"rgb(168, 32, 26)", "rgb(255, 157, 150)"}
    site.flow_door = socket.create_server(("127.0.0.1", int(site.flow_address.rpartition(":")[2])))
    for window, part in zip(windows, parts, strict=True):
        part.locator("summary", has_text="the flow does not run").wait_for(state="detached")
        assert window.faults == []
        window.close()


def test_so_many_orders_to_parse_again_wait_and_no_more(site):
    orders = RedriveOrders(site.line.cloud)
    root, csrf = visitor(site, "root")
    form = {"csrf": csrf, "outcome": "dead", "reason": "of nobody", "parser": "", "span": "1d"}
    statuses = [root.post("/console/flow/redrive", data=form).status_code for _ in range(MAX_WAITING + 1)]
    assert (statuses[-1], len(orders.waiting())) == (503, MAX_WAITING)
    for each in orders.waiting():
        orders.end(each.number, RedriveEnd(at_ms=1))
    root.close()


def begin_rollout(page, where: str, **fields: str) -> None:
    """Fill the form, look at the list, and start."""
    page.goto("/console/rollouts")
    page.get_by_role("link", name="Begin a roll-out").click()
    for label, value in {"Devices": where, "Command": "switch", **fields}.items():
        page.get_by_label(label).first.fill(value)
    page.get_by_role("button", name="Show who gets it").click()
    page.get_by_role("button", name="Start: ").click()
    page.wait_for_url(re.compile("/console/rollouts/[0-9a-f]{16}$"))


def test_a_command_is_rolled_out_first_to_who_is_named_and_stopped(site, window):
    page = window.page
    page.goto("/console/rollouts/new?where=device=lamp-*")
    page.get_by_label("Command").first.fill("switch")
    page.get_by_label("Arguments (JSON)").fill("{")
    page.get_by_role("button", name="Show who gets it").click()
    assert "is not JSON" in page.get_by_role("alert").inner_text()
    page.get_by_label("Arguments (JSON)").fill('{"on": true}')
    page.get_by_label("First (may be left out)").fill("lamp-2\nlamp-9\n")
    page.get_by_role("button", name="Show who gets it").click()
    page.get_by_role("alert").filter(has_text="'lamp-9' is not among the devices").wait_for()
    page.get_by_label("First (may be left out)").fill("lamp-2\n")
    page.get_by_role("button", name="Show who gets it").click()
    start = page.get_by_role("button", name="Start: 2 commands")
    start.wait_for()
    expect(page.locator("ol li")).to_have_text(["lamp-2", DEVICE])
    start.click()
    life = page.locator("#rollout")
    life.filter(has_text="1 SUCCEEDED").wait_for()
    assert "RUNNING" in life.inner_text()
    page.get_by_role("button", name="Stop this roll-out").click()
    life.filter(has_text="DONE").wait_for()
    assert "1 CANCELLED, 1 SUCCEEDED" in life.inner_text()
    window.follow(page.get_by_role("row").filter(has_text="CANCELLED").get_by_role("link", name="lamp-2"))
    page.get_by_role("region", name="The commands").get_by_role("link").first.click()
    page.wait_for_url("**/console/commands/*")
    assert "CANCELLED" in page.locator("#life").inner_text()
    assert window.faults == []


def test_roll_out_stops_at_its_share_of_failures_and_goes_on_if_its_operator_says_so(window):
    """No bridge knows the meters, so each of their commands fails."""
    page = window.page
    begin_rollout(page, "type=meter", **{"Stop at so many failures": "30", "Commands that begin per second": "4"})
    life = page.locator("#rollout")
    life.filter(has_text="FAILED: too many commands failed").wait_for()
    assert "2 REJECTED" in life.inner_text()
    expect(page.get_by_role("button", name="Stop this roll-out")).to_have_count(0)
    page.get_by_role("button", name="Go on with the devices that are left").click()
    life.filter(has_text="4 REJECTED").wait_for()
    page.goto("/console/rollouts")
    assert "root (password)" in page.get_by_role("row").nth(1).inner_text()
    assert window.faults == []


def test_a_plot_is_drawn_from_the_table(window):
    page = window.page
    page.goto(f"/console/devices/{DEVICE}?metric=temperature&span=7d")
    page.locator("figure canvas").wait_for()
    assert page.get_by_role("row", name="temperature").first.inner_text().startswith("temperature\t24.75\tCel")
    assert window.faults == []
