"""Principals as logs and command records show them."""

import pytest

from fogline_cloud.access.principal import ASSERTED, Principal, PrincipalKind


def test_a_container_id_cannot_forge_a_line_of_the_log():
    """Any text may be a client's container id, which is its name while nothing proves one."""
    forged = Principal(PrincipalKind.CLIENT, "acme", "x\n2026-01-01 gateway gw-1 is gone", "asserted")
    assert str(forged) == r"client acme/'x\n2026-01-01 gateway gw-1 is gone' (asserted)"
    assert str(Principal(PrincipalKind.GATEWAY, "acme", "gw-1", "asserted")) == "gateway acme/gw-1 (asserted)"


@pytest.mark.parametrize("begin", ["a" * 600, "\U0001f600" * 300, "n\n" * 300], ids=["letters", "emoji", "lines"])
def test_names_with_a_common_prefix_stay_distinct_when_cut(begin):
    texts = {str(Principal(PrincipalKind.CLIENT, "t" * 64, begin + end, ASSERTED)) for end in ("", "1", "2")}
    assert len(texts) == 3
    assert max(len(each) for each in texts) < 256
    assert all(each.isprintable() for each in texts)
