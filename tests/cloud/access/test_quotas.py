"""How much a peer may do."""

from fogline_cloud.access import quotas as module
from fogline_cloud.access.access_file import Quota
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.access.quotas import DEBT_S, Quotas, Use

GATEWAY = Principal(PrincipalKind.GATEWAY, "t", "gw-1", "certificate")
PLENTY = Quota(kind="gateway", events_s=1e6)


def test_a_peer_within_its_quota_owes_nothing():
    use = Use(Quota(kind="gateway", events_s=100, bytes_s=10_000), 0.0)
    for second in range(60):
        use.count(float(second), events=100, size_bytes=10_000)
        assert use.owed_s(second + 1.0) == 0


def test_a_burst_is_paid_for_at_the_rate():
    use = Use(Quota(kind="gateway", events_s=100), 0.0)
    use.count(0.0, events=500)
    assert use.owed_s(0.0) == 4.0
    assert use.owed_s(3.0) == 1.0
    assert use.owed_s(4.0) == 0


def test_the_quota_that_lasts_longest_counts():
    use = Use(Quota(kind="gateway", events_s=100, bytes_s=10), 0.0)
    use.count(0.0, events=200, size_bytes=110)
    assert use.owed_s(0.0) == 10.0


def test_a_minute_of_commands_may_come_at_once_and_one_more_minute_on_credit():
    use = Use(Quota(kind="client", commands_min=30), 0.0)
    use.count(0.0, commands=30)
    assert use.owed_s(0.0) == 0
    use.count(0.0, commands=30)
    assert use.owed_s(0.0) == DEBT_S


def test_reconnected_peer_keeps_its_debt_and_a_changed_quota_starts_fresh():
    quotas, quota = Quotas(), Quota(kind="gateway", events_s=1)
    use = quotas.use(GATEWAY, quota, 0.0)
    use.count(0.0, events=11)
    assert quotas.use(GATEWAY, quota, 1.0).owed_s(1.0) == 9.0
    assert quotas.use(GATEWAY, PLENTY, 1.0).owed_s(1.0) == 0
    assert quotas.use(GATEWAY, None, 1.0) is None


def test_peers_under_ever_new_names_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(module, "MAX_PEERS", 10)
    quotas = Quotas()
    for number in range(100):
        quotas.use(Principal(PrincipalKind.CLIENT, "t", f"c{number}", "asserted"), PLENTY, 0.0)
    assert len(quotas._uses) == 10
