"""Principals as logs and command records show them."""

from fogline_cloud.access.principal import Principal, PrincipalKind


def test_a_container_id_cannot_forge_a_line_of_the_log():
    """Any text may be a client's container id, which is its name while nothing proves one."""
    forged = Principal(PrincipalKind.CLIENT, "acme", "x\n2026-01-01 gateway gw-1 is gone", "asserted")
    assert str(forged) == r"client acme/'x\n2026-01-01 gateway gw-1 is gone' (asserted)"
    assert str(Principal(PrincipalKind.GATEWAY, "acme", "gw-1", "asserted")) == "gateway acme/gw-1 (asserted)"
