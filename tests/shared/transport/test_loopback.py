"""What counts as an address that only this machine reaches (RFC 1122, section 3.2.1.3; RFC 4291, section 2.5.3)."""

import pytest

from fogline.transport.loopback import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.255.0.3", "::1"])
def test_loopback_addresses_are_known(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "127.0.0.1.evil.example", "127.evil.example", "gw-1"])
def test_a_name_that_may_lead_elsewhere_is_none(host):
    assert not is_loopback(host)
