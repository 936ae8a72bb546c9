"""A peer that is refused again and again cannot fill the audit topic."""

from fogline.process import rates
from fogline_cloud.audit import throttle as module
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.audit.throttle import BURST, AuditThrottle


def refused(gateway="gw-2", command="C1"):
    return AuditRecord(
        time_ms=1, who=f"gateway acme/{gateway}", gateway=gateway, command=command, decision="REPLY REFUSED", why="no"
    )


def test_a_flood_of_refused_replies_writes_one_line_a_minute_with_their_count():
    audits = AuditThrottle()
    flood = [refused() for _ in range(1000)]
    assert len(list(audits.select(flood, 0.0))) == BURST
    assert list(audits.select(flood, 59.0)) == []
    (line,) = audits.select([refused()], 60.0)
    assert line.why == f"no ({2000 - BURST} more before)"
    (line,) = audits.select([refused()], 120.0)
    assert line.why == "no"


def test_the_line_of_another_gateway_is_written_during_a_flood():
    audits = AuditThrottle()
    flood = [*(refused() for _ in range(1000)), refused("gw-1")]
    assert [each.gateway for each in audits.select(flood, 0.0)].count("gw-1") == 1


def test_gateways_under_ever_new_names_take_no_more_memory(monkeypatch):
    for each in (module, rates):
        monkeypatch.setattr(each, "MAX_DEVICES", 10)
    audits = AuditThrottle()
    for number in range(100):
        list(audits.select([refused(f"gw-{number}") for _ in range(BURST + 1)], 0.0))
    assert (len(audits._rates), len(audits._omitted)) == (10, 10)
