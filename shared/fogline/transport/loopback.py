"""Addresses of this machine that no other machine reaches."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return True for `localhost` and for a loopback address, but not for a name such as `127.0.0.1.example`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
