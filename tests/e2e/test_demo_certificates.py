"""The demo's certificates, their pure parts: what is right for a gateway that is revoked, and what its bridge said of it."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "deploy"))

from demo.certificate_changes import TRACKER, decisions, refusals
from demo.certificate_judgement import CUT_LIMIT_S, IN_AUDIT, Renewal, Revocation, RevokedEvents, judge_certificates
from demo.certificates import bridge_tables, uplink_tables
from demo.judgement import RunEvidence, judge
from demo.report import DemoReport
from demo.workspace import Ports, Workspace
from e2e.demo_verdict import verdict

RENEWAL = Renewal("gateway-1", "aa" * 20, "bb" * 20, 1.2)
REVOCATION = Revocation("gateway-3", 3.4, sent_before=3, refused=5, audited=IN_AUDIT)
EVENTS = RevokedEvents({1, 2, 3, 4}, Counter([1, 2]), Counter([1, 2]), {2, 3, 4})


def judged(renewal=RENEWAL, revocation=REVOCATION, **changes):
    return judge_certificates(renewal, revocation, replace(EVENTS, **changes))


def test_events_of_a_revoked_gateway_are_in_the_table_or_in_its_outbox():
    found = judged()
    assert found.problems == []
    assert (found.acknowledged, found.landed, found.kept) == (4, 2, 2)
    assert [str(value) for _, value in found.rows] == [
        "serial aaaaaaaa.. became bbbbbbbb.. in 1.2 s",
        "cut after 3.4 s, refused 5 times since then, as the audit says",
        "4 acknowledged: 2 in Kafka and in the table, 2 in its outbox",
    ]
    assert found.as_json()["revoked_events"] == {"acknowledged": 4, "landed": 2, "in_outbox": 2}
    assert DemoReport(verdict(), {}, {}, certificates=found).status == 0


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (judged(outbox={2, 3}), "are lost: [4]"),
        (judged(table=Counter([1])), "are in only one of Kafka and table: [2]"),
        (judged(kafka=Counter([1, 2, 2])), "are twice"),
        (judged(kafka=Counter([1, 2, 4]), table=Counter([1, 2, 4])), "sent after the gateway was cut: [4]"),
        (judged(renewal=replace(RENEWAL, after=RENEWAL.before)), "former certificate"),
        (judged(revocation=replace(REVOCATION, cut_s=CUT_LIMIT_S + 1)), "was cut after 61 s"),
        (judged(revocation=replace(REVOCATION, refused=0)), "was not refused"),
        (judged(revocation=replace(REVOCATION, audited=IN_AUDIT - {"CONNECTION CLOSED"})), "the audit lacks decisions"),
    ],
)
def test_problem_with_certificates_fails_the_report(found, problem):
    (text,) = found.problems
    assert problem in text
    assert DemoReport(verdict(), {}, {}, certificates=found).status == 1


def test_the_device_of_the_revoked_gateway_is_judged_apart():
    lamp, tracker = ("lamp-01", 1), (TRACKER.name, 1)
    evidence = RunEvidence({lamp}, {"lamp-01": 1}, Counter([lamp, tracker]), Counter([lamp]))
    assert judge(evidence.without(TRACKER.name)).equal
    assert evidence.of(TRACKER.name) == (Counter([1]), Counter())


def test_refusals_are_counted_from_the_bridges_log(folder):
    workspace = Workspace(folder, Ports(1, (2,), (3, 4), (5, 6)), stolen="gateway-3")
    workspace.logs.mkdir()
    refused = "WARNING fogline.bridge.refused: a connection is refused: closed from this side: amqp:unauthorized-access: "
    (workspace.logs / "bridge-1.log").write_text(
        "the connection of gateway demo/gateway-3 (certificate) is closed: its certificate: it is revoked\n"
        f"{refused}the certificate of gateway-3: it is revoked\n"
        f"{refused}the certificate of gateway-1: it is revoked\n"
        f"{refused}the certificate of gateway-3: it is revoked (4 more like this)\n"
        "the connection of gateway demo/gateway-3 (certificate) ended: closed by the peer\n"
    )
    assert len(decisions(workspace)) == 3
    assert refusals(workspace) == 6


def test_the_settings_of_a_run_are_those_that_enrolment_needs():
    assert "enrolment = true" in bridge_tables("bridge-1", 5 / 1440)
    assert "days = 0.00347" in bridge_tables("bridge-1", 5 / 1440)
    assert uplink_tables().startswith("renew = true\n")
