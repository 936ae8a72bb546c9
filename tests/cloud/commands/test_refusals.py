"""A gateway whose replies are refused cannot fill the audit topic."""

from fogline.process import rates
from fogline_cloud.commands import reply_lane as module
from fogline_cloud.commands.record import Audit
from fogline_cloud.commands.reply_lane import BURST, RefusalAudits


def refused(gateway="gw-2", command="C1"):
    return Audit(
        time_ms=1, command=command, device="lamp-1", gateway=gateway, name="", operator="", decision="REPLY REFUSED", why="no"
    )


def test_a_flood_of_refused_replies_writes_one_line_a_minute_with_their_count():
    audits = RefusalAudits()
    flood = [refused() for _ in range(1000)]
    assert len(list(audits.select(flood, 0.0))) == BURST
    assert list(audits.select(flood, 59.0)) == []
    (line,) = audits.select([refused()], 60.0)
    assert line.why == f"no ({2000 - BURST} more refused before)"
    (line,) = audits.select([refused()], 120.0)
    assert line.why == "no"


def test_the_line_of_another_gateway_is_written_during_a_flood():
    audits = RefusalAudits()
    flood = [*(refused() for _ in range(1000)), refused("gw-1")]
    assert [each.gateway for each in audits.select(flood, 0.0)].count("gw-1") == 1


def test_gateways_under_ever_new_names_take_no_more_memory(monkeypatch):
    for each in (module, rates):
        monkeypatch.setattr(each, "MAX_DEVICES", 10)
    audits = RefusalAudits()
    for number in range(100):
        list(audits.select([refused(f"gw-{number}") for _ in range(BURST + 1)], 0.0))
    assert (len(audits._rates), len(audits._omitted)) == (10, 10)
