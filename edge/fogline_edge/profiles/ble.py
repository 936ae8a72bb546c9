"""What is declared of a kind of Bluetooth LE device, and what follows from it for one advertisement. Pure.

A profile is a TOML file (`ble_files` reads it; those in the box are in `ble_devices/`). It says how an advertisement is
recognised, what becomes of it, and, for a device that is connected to, which characteristics are read, listened to and
written. What the bytes mean is not its business: the flow in the cloud parses them.
"""

import re
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fogline.address import is_identifier
from fogline.advertisement import Advertisement, encode, short_uuid
from fogline.event import Lane
from fogline.identity import Counter
from fogline.report import Report
from fogline_edge.profiles.ble_counters import FINDERS, Place
from fogline_edge.profiles.ble_values import Encoding
from fogline_edge.profiles.names import escape

MAX_CHANNEL = 64

_UUID = re.compile(r"[0-9a-fA-F]{4}|[0-9a-fA-F]{8}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PART = re.compile(r"\{(?:(address)|(name)|data:(\d{1,3}):(\d{1,3}))\}")
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
Company = Annotated[int, Meta(ge=0, le=0xFFFF)]


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An unknown key is an error."""


class Recognise(_Strict, frozen=True, kw_only=True):
    """What an advertisement has to have, all of it.

    `service_data` or `manufacturer`: data under this UUID or company number, which is then the device's data; `prefix`:
    the first bytes of it, in hex. `services`: UUIDs that it lists. `name`: a pattern as of a shell (`GVH5*`), case counts.
    """

    service_data: str | None = None
    manufacturer: Company | None = None
    prefix: str = ""
    services: list[str] = msgspec.field(default_factory=list)
    name: str | None = None

    def __post_init__(self) -> None:
        if self.service_data is not None and self.manufacturer is not None:
            raise ValueError("service_data and manufacturer exclude each other; make two [[recognise]] of them")
        if self.service_data is None and self.manufacturer is None and (self.prefix or not (self.services or self.name)):
            raise ValueError("service_data or manufacturer is missing (or, without a prefix, services or name)")
        for uuid in [*self.services, *([] if self.service_data is None else [self.service_data])]:
            full_uuid(uuid)
        if re.fullmatch(r"([0-9a-fA-F]{2}){0,24}", self.prefix) is None:
            raise ValueError(f'prefix = {self.prefix!r}: expected up to 24 bytes in hex, for example "0215"')


class CounterRule(_Strict, frozen=True, kw_only=True):
    """Where a device counts, in its data: `find = "at"` with `offset` (bytes), or a function of `ble_counters.FINDERS`.

    `unknown`: the value that says that there is none.
    """

    find: str = "at"
    offset: Annotated[int, Meta(ge=0, le=253)] = 0
    width_bits: Literal[8, 16, 24, 32] = 8
    byte_order: Literal["little", "big"] = "little"
    unknown: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        if self.find not in FINDERS:
            raise ValueError(f"find = {self.find!r}: expected one of {', '.join(FINDERS)}")


class ReportRule(_Strict, frozen=True, kw_only=True):
    """Which of the advertisements become events (`fogline.report`): a device sends the same one again and again.

    `on_change`: only one that differs from the last that did. `min_interval_s`: at most one in so many seconds.
    `max_interval_s`: one in so many seconds even if nothing has changed.
    """

    on_change: bool = True
    min_interval_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    max_interval_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None

    @property
    def report(self) -> Report:
        """For an arrival."""
        return Report(min_interval_s=self.min_interval_s, on_change=self.on_change, max_interval_s=self.max_interval_s)


class Read(_Strict, frozen=True, kw_only=True):
    """A characteristic that is read every `interval_s`."""

    characteristic: str
    interval_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0

    def __post_init__(self) -> None:
        full_uuid(self.characteristic)


class Notify(_Strict, frozen=True, kw_only=True):
    """A characteristic whose notifications (or indications) are events."""

    characteristic: str

    def __post_init__(self) -> None:
        full_uuid(self.characteristic)


class AnswerBy(StrEnum):
    """What answers a command.

    `WRITE`: the device's response to the write. `NOTIFY`: its next notification of `answer_characteristic`. `NOTHING`: it
    is written without a response, and nobody knows.
    """

    WRITE = "write"
    NOTIFY = "notify"
    NOTHING = "nothing"


class CommandRule(_Strict, frozen=True, kw_only=True):
    """A command by its name: the characteristic that it is written to, how its body becomes bytes, and what answers it."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,64}$")]
    characteristic: str
    encoding: Encoding = Encoding.BYTES
    answer: AnswerBy = AnswerBy.WRITE
    answer_characteristic: str | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=300)] = 10.0

    def __post_init__(self) -> None:
        for uuid in (self.characteristic, self.answer_characteristic):
            if uuid is not None:
                full_uuid(uuid)
        if (self.answer is AnswerBy.NOTIFY) != (self.answer_characteristic is not None):
            raise ValueError('answer_characteristic goes with answer = "notify", and only with it')


class BleProfile(_Strict, frozen=True, kw_only=True):
    """One kind of device. Of several `recognise`, one has to fit.

    `channel`, `lane`, `type`: of its events. `shared`: several gateways may hear it, and are to make one event of what
    they hear. `device`: its name, of words and `{address}`, `{name}` (the local name), `{data:A:B}` (bytes A to B of its
    data, in hex). `keep`: what else of the advertisement goes into the event, beside what recognises it.
    """

    name: Name
    about: str = ""
    recognise: Annotated[list[Recognise], Meta(min_length=1, max_length=32)]
    channel: Annotated[str, Meta(min_length=1, max_length=MAX_CHANNEL)]
    lane: Lane = Lane.TELEMETRY
    type: Annotated[str, Meta(min_length=1, max_length=64)] = "telemetry"
    shared: bool = False
    device: Annotated[str, Meta(min_length=1, max_length=64)] = "{address}"
    keep: list[Literal["name", "manufacturer", "service_data", "services", "tx_power"]] = msgspec.field(default_factory=list)
    counter: CounterRule | None = None
    report: ReportRule = msgspec.field(default_factory=ReportRule)
    read: Annotated[list[Read], Meta(max_length=64)] = msgspec.field(default_factory=list)
    notify: Annotated[list[Notify], Meta(max_length=64)] = msgspec.field(default_factory=list)
    commands: Annotated[list[CommandRule], Meta(max_length=256)] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        rest = _PART.sub("", self.device)
        if re.fullmatch(r"[A-Za-z0-9._:-]*", rest) is None or rest == self.device:
            raise ValueError(
                f"device = {self.device!r}: expected words of A-Z a-z 0-9 . _ : - and {{address}}, {{name}} or {{data:A:B}}"
            )
        if self.lane is Lane.REPLY:
            raise ValueError('lane = "reply" is for the answers to commands')
        has_data = all(each.service_data is not None or each.manufacturer is not None for each in self.recognise)
        if self.counter is not None and not has_data:
            raise ValueError("a counter needs service_data or manufacturer in every [[recognise]]")
        if self.shared and "{name}" in self.device:
            raise ValueError("a shared device cannot be named by {name}: not every gateway that hears it knows that")
        for what, found in (
            ("commands", [each.name for each in self.commands]),
            ("read", [full_uuid(each.characteristic) for each in self.read]),
            ("notify", [full_uuid(each.characteristic) for each in self.notify]),
        ):
            twice = sorted({each for each in found if found.count(each) > 1})
            if twice:
                raise ValueError(f"{what}: {twice[0]} is there twice")

    @property
    def reference(self) -> str:
        """What stands for it in the settings."""
        return self.name

    @property
    def connects(self) -> bool:
        """Whether a gateway has to connect to such a device."""
        return bool(self.read or self.notify or self.commands)

    @property
    def shortest_read_s(self) -> float:
        """How often at least it says something while it is connected to; 0 if nothing of it is read."""
        return min((each.interval_s for each in self.read), default=0.0)


class OwnProfile(BleProfile, frozen=True, kw_only=True):
    """One that is not in the box. `path`: of its file, absolute."""

    path: str

    @property
    def reference(self) -> str:
        """What stands for it in the settings."""
        return self.path


@lru_cache(maxsize=4096)
def full_uuid(text: str) -> str:
    """A UUID of 4, 8 or 32 hex digits in full and in lower case. Raises `ValueError`."""
    if _UUID.fullmatch(text) is None:
        raise ValueError(f'{text!r} is no UUID: expected "fcd2", or all of "0000fcd2-0000-1000-8000-00805f9b34fb"')
    return short_uuid(int(text, 16)) if len(text) <= 8 else text.lower()


def fits(profile: BleProfile, advertisement: Advertisement) -> bool:
    """Whether this is an advertisement of such a device."""
    return _recognised(profile, advertisement) is not None


def device_of(profile: BleProfile, address: str, advertisement: Advertisement) -> str | None:
    """The device's name, an identifier; `None` if the profile does not fit, or what names the device was not heard yet."""
    rule = _recognised(profile, advertisement)
    return None if rule is None else _name(profile, address, advertisement.name, _data(rule, advertisement))


def listed_name(profile: BleProfile, address: str, advertisement: Advertisement | None = None) -> str | None:
    """The name of a device whose profile is known by its address, even if this advertisement (`None`: not heard) does not fit.

    `None` as for `device_of`.
    """
    if advertisement is None:
        return _name(profile, address, None, b"")
    rule = _recognised(profile, advertisement)
    return _name(profile, address, advertisement.name, b"" if rule is None else _data(rule, advertisement))


def _name(profile: BleProfile, address: str, name: str | None, data: bytes) -> str | None:
    parts: list[str] = []
    end = 0
    for found in _PART.finditer(profile.device):
        part = _named(found, address, name, data)
        if not part:
            return None
        parts += (profile.device[end : found.start()], part)
        end = found.end()
    made = "".join((*parts, profile.device[end:]))
    return made if is_identifier(made) else escape(made)


def _named(found: re.Match[str], address: str, name: str | None, data: bytes) -> str | None:
    if found[1]:
        return address.upper()
    if found[2]:
        return escape(name) if name else None
    return data[int(found[3]) : int(found[4])].hex()


def counter_of(profile: BleProfile, advertisement: Advertisement) -> Counter | None:
    """The device's own count of what it says, if the profile declares one and it is there."""
    rule = _recognised(profile, advertisement)
    if rule is None or profile.counter is None:
        return None
    declared = profile.counter
    place = Place(declared.offset, declared.width_bits, declared.byte_order)
    counter = FINDERS[declared.find](_data(rule, advertisement), place)
    return None if counter is None or counter.value == declared.unknown else counter


def body_of(profile: BleProfile, advertisement: Advertisement) -> bytes:
    """The event's body: what recognises the device, and what the profile keeps, as AD structures.

    What else an advertisement has is left out: two gateways that hear one device need not have heard the same of it.
    Raises `Poison` (`malformed`, `too-big`).
    """
    uuids = {full_uuid(rule.service_data) for rule in profile.recognise if rule.service_data is not None}
    companies = {rule.manufacturer for rule in profile.recognise}
    keep = set(profile.keep)
    kept = Advertisement(
        name=advertisement.name if "name" in keep else None,
        manufacturer={
            number: data for number, data in advertisement.manufacturer.items() if number in companies or "manufacturer" in keep
        },
        service_data={
            uuid: data for uuid, data in advertisement.service_data.items() if uuid in uuids or "service_data" in keep
        },
        services=advertisement.services if "services" in keep else (),
        tx_power=advertisement.tx_power if "tx_power" in keep else None,
    )
    return encode(kept)


def _recognised(profile: BleProfile, advertisement: Advertisement) -> Recognise | None:
    """The first of the profile's rules that fits."""
    return next((rule for rule in profile.recognise if _fits(rule, advertisement)), None)


def _fits(rule: Recognise, advertisement: Advertisement) -> bool:
    if rule.service_data is not None and full_uuid(rule.service_data) not in advertisement.service_data:
        return False
    if rule.manufacturer is not None and rule.manufacturer not in advertisement.manufacturer:
        return False
    if rule.prefix and not _data(rule, advertisement).startswith(bytes.fromhex(rule.prefix)):
        return False
    if any(full_uuid(each) not in advertisement.services for each in rule.services):
        return False
    return rule.name is None or fnmatchcase(advertisement.name or "", rule.name)


def _data(rule: Recognise, advertisement: Advertisement) -> bytes:
    """What the device says by the rule: its service data, or its manufacturer's."""
    if rule.service_data is not None:
        return advertisement.service_data.get(full_uuid(rule.service_data), b"")
    return advertisement.manufacturer.get(-1 if rule.manufacturer is None else rule.manufacturer, b"")
