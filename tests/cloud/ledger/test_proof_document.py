"""The ledger's signed document, by the real commands: *incomplete* for each thing that is wrong, and for nothing else."""

import json
import subprocess
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime

import pytest

from fogline.events.event import Lane
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_authority, make_key, pem
from fogline_lab.events import NOW_NS
from fogline_lab.ledger_site import AIR, ALARMS, EVERYTHING, SHARDS, YARD, make_site, stream_of
from fogline_lab.supervisor import find_script

HOUR_NS = 3600 * 10**9
DAY = f"{datetime.fromtimestamp(NOW_NS / 10**9, UTC):%Y-%m-%d}"
BEFORE = datetime.fromtimestamp(NOW_NS // 10**9 - 3600, UTC)
LATER = NOW_NS + 24 * HOUR_NS
COMPLETE = [*EVERYTHING, *stream_of("gw-1", "00000000000000dd", Lane.TELEMETRY, 3, ended_ns=LATER)]
COMPLETE += stream_of("gw-2", "00000000000000ee", Lane.TELEMETRY, 3, ended_ns=LATER)


class Handed:
    """What the commands said about the day: the status of both, the document, and how it reads."""

    def __init__(self, site, folder, *words, access=None):
        tenant = site.settings.tenant
        authority = make_authority(tenant, BEFORE)
        key = make_key()
        (folder / "ca.pem").write_bytes(pem(authority.certificate))
        bridge = authority.issue(Subject(tenant, Role.BRIDGE, "cloud-1"), key.public_key(), BEFORE, 3000)
        (folder / "bridge.pem").write_bytes(pem(bridge))
        (folder / "bridge.key").write_bytes(key_pem(key))
        (folder / "bridge.key").chmod(0o600)
        bootstrap = site.settings.kafka["bootstrap.servers"]
        (folder / "cloud.toml").write_text(
            f'tenant = "{tenant}"\nshards = {SHARDS}\n[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'
            f'[flow]\ntables = "{site.tables}"\n' + ('[bridge]\naccess = "access.toml"\n' if access else "")
        )
        (folder / "access.toml").write_text(access or "")
        signer = ["--sign-with", "bridge.pem", "--sign-key", "bridge.key"]
        verify = fogline(folder, "ledger", "verify", "--day", DAY, "--document", "proof.jws", *signer, *words)
        assert verify.returncode in (0, 1), verify.stderr
        checked = fogline(folder, "ledger", "check-proof", "proof.jws", "--ca", "ca.pem", "--json")
        self.text = fogline(folder, "ledger", "check-proof", "proof.jws", "--ca", "ca.pem").stdout
        self.proof = json.loads(checked.stdout)["proof"]
        self.reasons = [(each["kind"], each["gateway"]) for each in self.proof["doubts"]]
        self.verdicts = {self.proof["complete"], verify.returncode == 0, checked.returncode == 0, not self.reasons}
        self.verdicts |= {"\nincomplete: " not in self.text, "\nCOMPLETE: " in self.text}


def fogline(folder, *words):
    return subprocess.run(
        [find_script("fogline"), *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def complete(kafka, tmp_path_factory):
    return make_site(kafka.bootstrap, tmp_path_factory.mktemp("complete") / "tables", COMPLETE)


def test_a_complete_day_is_complete_with_its_counts_and_its_explained_gap(complete, folder):
    handed = Handed(complete, folder)
    assert handed.verdicts == {True}
    assert handed.proof["rows"] == {
        "events": {"ok": 57 + 20 + 30},
        "readings_expected": 214,
        "readings": 214,
        "gap_records": 1,
        "gaps": [
            {
                "gateway": "gw-1",
                "stream": AIR,
                "first": 41,
                "last": 43,
                "reason": "dropped",
                "detail": "the outbox was full",
            }
        ],
    }
    assert {each["stream"]: each["acknowledged"] for each in handed.proof["streams"]}[YARD] == 32


@pytest.mark.parametrize("tables", [("events", "readings"), ("readings",)])
def test_a_deleted_row_makes_the_day_incomplete(complete, folder, tables):
    site = complete.with_tables(folder)
    for table in tables:
        site.delete(table, AIR, 17, 17)
    handed = Handed(site, folder)
    assert handed.verdicts == {False}
    kind = "table-missing" if "events" in tables else "readings-missing"
    assert (kind, "gw-1") in handed.reasons
    assert {gateway for _, gateway in handed.reasons} <= {"gw-1", ""}
    assert f"{AIR}: 17: " in handed.text


def test_an_event_that_no_gap_record_explains_makes_the_day_incomplete(kafka, folder):
    without = [each for each in COMPLETE if (each.stream, each.sequence) != (ALARMS, 7)]
    handed = Handed(make_site(kafka.bootstrap, folder / "tables", without), folder)
    assert handed.verdicts == {False}
    assert ("lost", "gw-1") in handed.reasons
    assert {gateway for _, gateway in handed.reasons} == {"gw-1"}
    assert f"{ALARMS}: 7: " in handed.text


SILENT = [each for each in COMPLETE if each.gateway != "gw-2"]
SILENT += stream_of("gw-2", YARD, Lane.TELEMETRY, 30, settled=10)


def test_a_silent_gateway_with_a_backlog_makes_the_day_incomplete(kafka, folder):
    handed = Handed(make_site(kafka.bootstrap, folder / "tables", SILENT), folder)
    assert handed.verdicts == {False}
    assert handed.reasons == [("silent", "gw-2")]
    assert "gateway gw-2 is complete until" in handed.text
    assert "backlog 20" in handed.text


def test_a_device_is_proven_by_the_gateways_that_may_hear_it(kafka, folder):
    """`gw-2` is silent, and may send for `meter-1` only."""
    site = make_site(kafka.bootstrap, folder / "tables", SILENT)
    access = '[[device]]\ngateways = ["gw-1"]\nname = "lamp-*"\n\n[[device]]\ngateways = ["gw-2"]\nname = "meter-1"\n'
    lamp = Handed(site, folder, "--device", "lamp-1", access=access)
    assert lamp.verdicts == {True}
    assert {each["gateway"] for each in lamp.proof["streams"]} == {"gw-1"}
    assert Handed(site, folder, "--device", "meter-1", access=access).verdicts == {False}


def test_a_document_that_was_changed_is_refused(complete, folder):
    """By one who makes it say *complete*, and leaves the signature."""
    site = complete.with_tables(folder)
    site.delete("events", AIR, 17, 17)
    Handed(site, folder)
    head, body, signature = (folder / "proof.jws").read_text().strip().split(".")
    forged = urlsafe_b64decode(body + "==").replace(b'"complete":false', b'"complete":true')
    (folder / "proof.jws").write_text(f"{head}.{urlsafe_b64encode(forged).rstrip(b'=').decode()}.{signature}\n")
    said = fogline(folder, "ledger", "check-proof", "proof.jws", "--ca", "ca.pem")
    assert (said.returncode, said.stdout) == (2, "")
    assert "proof.jws: the signature is wrong" in said.stderr


def test_a_document_without_a_key_is_refused_before_anything_is_read(complete, folder):
    (folder / "cloud.toml").write_text('tenant = "acme"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n')
    said = fogline(folder, "ledger", "verify", "--document", "proof.jws")
    assert said.returncode == 2
    assert "--document needs a certificate" in said.stderr
