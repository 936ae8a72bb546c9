"""The form of a roll-out: which devices, which command, who gets it first, how fast, and when it stops. Pure."""

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from fogline.address import shown
from fogline.errors import Poison
from fogline_cloud.api.problems import Problem
from fogline_cloud.commands.client.command_group import GroupCommand
from fogline_cloud.console.pages.argument_form import WHOLE, arguments_of, fields_of
from fogline_cloud.devices.device_filter import DeviceFilter, read_filter

MAX_FIRST: Final = 1000
"""Devices that may be named as the first ones."""
MAX_RATE_S: Final = 500.0
MIN_TTL_S: Final = 1.0
MAX_TTL_S: Final = 4_000_000.0
_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_MAX_CHARS: Final = {"where": 2000, "name": 256, "data": 262_144, "first": 100_000}


class RolloutForm(msgspec.Struct, frozen=True, kw_only=True):
    """The fields, as they were typed. `id`: of this form, with which it is one roll-out however often it is sent.

    `seen`: the digest of the list that was shown before.
    """

    id: str
    where: str = ""
    name: str = ""
    data: str = ""
    first: str = ""
    rate_s: str = "5"
    stop_percent: str = "10"
    ttl_s: str = "300"
    idempotent: bool = False
    newest_wins: bool = False
    seen: str = ""

    def filter(self) -> DeviceFilter:
        """Return which devices match. Raises `Problem` (400)."""
        try:
            return read_filter([self.where])
        except Poison as error:
            raise Problem(400, f"Devices: {error}") from None

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return devices in the order in which they get the command: the first ones as named, then by name.

        Raises `Problem` (400) for a first one that is not among them.
        """
        rest = set(names)
        named = list(dict.fromkeys(each for line in self.first.splitlines() if (each := line.strip())))
        if len(named) > MAX_FIRST:
            raise Problem(400, f"First: {len(named)} devices are named, at most {MAX_FIRST} may be")
        for each in named:
            if each not in rest:
                raise Problem(400, f"First: {shown(each)} is not among the devices that match, and that you may command")
        return [*named, *sorted(rest - {*named})]

    def command(self, tenant: str, devices: Sequence[str], who: str, now_ms: int) -> GroupCommand:
        """Return the roll-out. Raises `Problem` (400) for a field that is wrong."""
        if not self.name:
            raise Problem(400, "Command: give its name")
        data = arguments_of(fields_of(None), {WHOLE: self.data})
        share = _number("Stop at failures", self.stop_percent, 0.0, 100.0) / 100 if self.stop_percent else None
        return GroupCommand(
            id=self.id,
            tenant=tenant,
            devices=list(devices),
            name=self.name,
            data_base64=base64.b64encode(data).decode(),
            content_type="application/json" if data else None,
            ttl_s=_number("Time to live", self.ttl_s, MIN_TTL_S, MAX_TTL_S, at_least=True),
            idempotent=self.idempotent,
            newest_wins=self.newest_wins,
            rate_s=_number("Rate", self.rate_s, 0.0, MAX_RATE_S),
            stop_share=share,
            created_ms=now_ms,
            created_by=who,
        )


def read_form(given: dict[str, str]) -> RolloutForm:
    """Return the fields of a form or of an address. Raises `Problem` (400)."""
    for name, most in _MAX_CHARS.items():
        if len(given.get(name, "")) > most:
            raise Problem(400, f"{name}: at most {most:,} characters")
    texts = ("where", "name", "data", "first", "rate_s", "stop_percent", "ttl_s", "seen")
    fields = {name: given[name].strip() for name in texts if name in given}
    known = given.get("id", "")
    return RolloutForm(
        id=known if _ID.fullmatch(known) else secrets.token_hex(8),
        idempotent="idempotent" in given,
        newest_wins="newest_wins" in given,
        **fields,
    )


def digest_of(devices: Iterable[str]) -> str:
    """Return what tells a list of devices from another one."""
    return hashlib.blake2b("\n".join(devices).encode(), digest_size=16).hexdigest()


def _number(label: str, text: str, least: float, most: float, *, at_least: bool = False) -> float:
    try:
        found = float(text)
    except ValueError:
        raise Problem(400, f"{label}: {shown(text)} is not a number") from None
    if not (least <= found if at_least else least < found) or not found <= most:
        raise Problem(400, f"{label}: expected {'at least' if at_least else 'more than'} {least:g}, and at most {most:,g}")
    return found
