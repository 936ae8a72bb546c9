"""The profile of a type of Bluetooth LE device, and its application to one advertisement. Pure.

A profile is a TOML file (built-in ones: `ble_devices/`). It declares how an advertisement is recognised and becomes an event,
and the characteristics to read, to subscribe to and to write. It does not interpret the bytes: the flow in the cloud does.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fogline.address import device_identifier, is_identifier
from fogline.advertisement import Advertisement, encode, short_uuid
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline.events.identity import Counter
from fogline.events.report_on_change import ReportPolicy
from fogline_edge.profiles.ble_values import Encoding
from fogline_edge.profiles.bthome import has_event

MAX_CHANNEL = 64
PRESS_PAUSE_S = 2.0
"""Time without an advertisement after which an equal one is another press of a button, in seconds."""
_ENCRYPTED, _HAS_ADDRESS = 0x01, 0x02
_ADDRESS_BYTES = 6
_COUNTER_AND_MIC_BYTES = 8

_UUID = re.compile(r"[0-9a-fA-F]{4}|[0-9a-fA-F]{8}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PART = re.compile(r"\{(?:(address)|(name)|data:(\d{1,3}):(\d{1,3}))\}")
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
Company = Annotated[int, Meta(ge=0, le=0xFFFF)]


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An unknown key is an error."""


class Recognise(_Strict, frozen=True, kw_only=True):
    """The conditions for an advertisement. All must hold.

    `service_data` or `manufacturer`: it has data under this UUID or company number, which is then the device's data; `prefix`:
    the first bytes of that data, in hex; `min_length`: the least number of its bytes. `services`: UUIDs that it lists.
    `name`: a case-sensitive shell pattern (`GVH5*`).
    """

    service_data: str | None = None
    manufacturer: Company | None = None
    prefix: str = ""
    min_length: Annotated[int, Meta(ge=0, le=254)] = 0
    services: list[str] = msgspec.field(default_factory=list)
    name: str | None = None

    def __post_init__(self) -> None:
        if self.service_data is not None and self.manufacturer is not None:
            raise ValueError("service_data and manufacturer exclude each other; write two [[recognise]] tables")
        about_data = self.prefix or self.min_length
        if self.service_data is None and self.manufacturer is None and (about_data or not (self.services or self.name)):
            raise ValueError("service_data or manufacturer is missing (without prefix or min_length, services or name suffice)")
        for uuid in [*self.services, *([] if self.service_data is None else [self.service_data])]:
            full_uuid(uuid)
        if re.fullmatch(r"([0-9a-fA-F]{2}){0,24}", self.prefix) is None:
            raise ValueError(f'prefix = {self.prefix!r}: expected up to 24 bytes in hex, for example "0215"')


class ReportRule(_Strict, frozen=True, kw_only=True):
    """The advertisements that become events (`fogline.events.report_on_change`), because a device repeats each many times.

    `on_change`: only one that differs from the last event. `max_interval_s`: then an unchanged one becomes an event again.
    """

    on_change: bool = True
    min_interval_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    max_interval_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None

    @property
    def report(self) -> ReportPolicy:
        """The policy for arrivals."""
        return ReportPolicy(min_interval_s=self.min_interval_s, on_change=self.on_change, max_interval_s=self.max_interval_s)


class _Characteristic(_Strict, frozen=True, kw_only=True):
    characteristic: str

    def __post_init__(self) -> None:
        full_uuid(self.characteristic)


class Notify(_Characteristic, frozen=True, kw_only=True):
    """A characteristic whose notifications (or indications) are events."""


class Read(_Characteristic, frozen=True, kw_only=True):
    """A characteristic that is read every `interval_s` seconds."""

    interval_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0


class AnswerBy(StrEnum):
    """The response to a command.

    `WRITE`: the device's response to the write. `NOTIFY`: its next notification of `answer_characteristic`. `NOTHING`: the
    command is written without response, so its result is unknown.
    """

    WRITE = "write"
    NOTIFY = "notify"
    NOTHING = "nothing"


class CommandRule(_Strict, frozen=True, kw_only=True):
    """A command: the characteristic that it is written to, the encoding of its body, and its response."""

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
            raise ValueError('answer_characteristic is required with answer = "notify", and only allowed with it')


class CounterRule(_Strict, frozen=True, kw_only=True):
    """The position of a counter in the device's data: `find = "at"` with `offset` (bytes), or another of `FINDERS`.

    `unknown`: the value that means that there is no counter.
    """

    find: str = "at"
    offset: Annotated[int, Meta(ge=0, le=253)] = 0
    width_bits: Literal[8, 16, 24, 32] = 8
    byte_order: Literal["little", "big"] = "little"
    unknown: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        if self.find not in FINDERS:
            raise ValueError(f"find = {self.find!r}: expected one of {', '.join(FINDERS)}")


class BleProfile(_Strict, frozen=True, kw_only=True):
    """A type of device. At least one entry of `recognise` must match.

    `channel`, `lane`, `type`: attributes of its events. `shared`: several gateways may receive an advertisement, and it becomes
    one event. `device`: the device's name, made of words, `{address}`, `{name}` (the local name) and `{data:A:B}` (bytes A to B
    of its data, in hex). `keep`: parts of the advertisement that the event holds beside those that recognise the device.
    `scan`: the scan that receives all of it (`ble_scan.needs_active`).
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
    scan: Literal["active", "passive", "auto"] = "auto"
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
            raise ValueError('lane = "reply" is reserved for replies to commands')
        has_data = all(each.service_data is not None or each.manufacturer is not None for each in self.recognise)
        if self.counter is not None and not has_data:
            raise ValueError("a counter needs service_data or manufacturer in every [[recognise]]")
        if self.shared and "{name}" in self.device:
            raise ValueError("a shared device cannot be named by {name}: not every gateway that receives it knows its name")
        for what, found in (
            ("commands", [each.name for each in self.commands]),
            ("read", [full_uuid(each.characteristic) for each in self.read]),
            ("notify", [full_uuid(each.characteristic) for each in self.notify]),
        ):
            twice = sorted({each for each in found if found.count(each) > 1})
            if twice:
                raise ValueError(f"{what}: {twice[0]} occurs twice")

    @property
    def reference(self) -> str:
        """The text that selects this profile in the settings."""
        return self.name

    @property
    def connects(self) -> bool:
        """Return True if a gateway must connect to such a device."""
        return bool(self.read or self.notify or self.commands)

    @property
    def shortest_read_s(self) -> float:
        """The shortest interval of its reads in seconds; 0 if none is configured."""
        return min((each.interval_s for each in self.read), default=0.0)


class OwnProfile(BleProfile, frozen=True, kw_only=True):
    """A profile that is not built in. `path`: absolute path of its file."""

    path: str

    @property
    def reference(self) -> str:
        """The text that selects this profile in the settings."""
        return self.path


@lru_cache(maxsize=4096)
def full_uuid(text: str) -> str:
    """Return a UUID of 4, 8 or 32 hex digits in full, in lower case. Raises `ValueError`."""
    if _UUID.fullmatch(text) is None:
        raise ValueError(f'{text!r} is no UUID: expected for example "fcd2" or "0000fcd2-0000-1000-8000-00805f9b34fb"')
    return short_uuid(int(text, 16)) if len(text) <= 8 else text.lower()


def fits(profile: BleProfile, advertisement: Advertisement) -> bool:
    """Return True if this is an advertisement of such a device."""
    return _recognised(profile, advertisement) is not None


def device_of(profile: BleProfile, address: str, advertisement: Advertisement) -> str | None:
    """Return the device's name, an identifier; None if the profile does not match, or the naming part is still missing."""
    rule = _recognised(profile, advertisement)
    return None if rule is None else _name(profile, address, advertisement.name, _data(rule, advertisement))


def listed_name(profile: BleProfile, address: str, advertisement: Advertisement | None = None) -> str | None:
    """Return the name of a listed device, matching the profile or not; None if the naming part has not been received yet."""
    if advertisement is None:
        return _name(profile, address, None, b"")
    rule = _recognised(profile, advertisement)
    return _name(profile, address, advertisement.name, b"" if rule is None else _data(rule, advertisement))


def _name(profile: BleProfile, address: str, name: str | None, data: bytes) -> str | None:
    parts = [_named(found, address, name, data) for found in _PART.finditer(profile.device)]
    if not all(parts):
        return None
    in_order = iter(parts)
    made = _PART.sub(lambda _: next(in_order), profile.device)
    if "{name}" not in profile.device and is_identifier(made):
        return made  # an address is no name, even if it looks like the identifier of one
    try:
        return device_identifier(made, "Bluetooth name")
    except Poison:
        return None


def _named(found: re.Match[str], address: str, name: str | None, data: bytes) -> str:
    if found[1]:
        return address.upper()
    if found[2]:
        return name or ""
    return data[int(found[3]) : int(found[4])].hex()


def counter_of(profile: BleProfile, advertisement: Advertisement) -> Counter | None:
    """Return the device's counter, if the profile declares one and the advertisement holds it."""
    rule = _recognised(profile, advertisement)
    if rule is None or profile.counter is None:
        return None
    declared = profile.counter
    counter = FINDERS[declared.find](_data(rule, advertisement), declared)
    return None if counter is None or counter.value == declared.unknown else counter


def report_of(profile: BleProfile, advertisement: Advertisement, report: ReportPolicy) -> ReportPolicy:
    """Return the policy for one advertisement of a device whose policy is `report`.

    A press of a button is an event, not a state: without a packet id (BTHome: optional) the next equal one differs from a
    repetition of the last one only by the pause before it.
    """
    rule = _recognised(profile, advertisement)
    if rule is None or profile.counter is None or profile.counter.find != "bthome" or counter_of(profile, advertisement):
        return report
    return replace(report, pause_s=PRESS_PAUSE_S) if has_event(_bthome_objects(_data(rule, advertisement))) else report


def body_of(profile: BleProfile, advertisement: Advertisement) -> bytes:
    """Return the event's body as AD structures: the parts that recognise the device, and those that the profile keeps.

    Two gateways may receive different other parts of one device's advertisements. Raises `Poison` (`malformed`, `too-big`).
    """
    uuids = {full_uuid(rule.service_data) for rule in profile.recognise if rule.service_data is not None}
    companies = {rule.manufacturer for rule in profile.recognise}
    keep = set(profile.keep)
    kept = Advertisement(
        name=advertisement.name if "name" in keep else None,
        manufacturer={
            number: data for number, data in advertisement.manufacturer.items() if number in companies or "manufacturer" in keep
        },
        service_data={key: data for key, data in advertisement.service_data.items() if key in uuids or "service_data" in keep},
        services=advertisement.services if "services" in keep else (),
        tx_power=advertisement.tx_power if "tx_power" in keep else None,
    )
    return encode(kept)


def _recognised(profile: BleProfile, advertisement: Advertisement) -> Recognise | None:
    return next((rule for rule in profile.recognise if _fits(rule, advertisement)), None)


def _fits(rule: Recognise, advertisement: Advertisement) -> bool:
    if rule.service_data is not None and full_uuid(rule.service_data) not in advertisement.service_data:
        return False
    if rule.manufacturer is not None and rule.manufacturer not in advertisement.manufacturer:
        return False
    if rule.prefix and not _data(rule, advertisement).startswith(bytes.fromhex(rule.prefix)):
        return False
    if len(_data(rule, advertisement)) < rule.min_length:
        return False
    if any(full_uuid(each) not in advertisement.services for each in rule.services):
        return False
    return rule.name is None or fnmatchcase(advertisement.name or "", rule.name)


def _data(rule: Recognise, advertisement: Advertisement) -> bytes:
    if rule.service_data is not None:
        return advertisement.service_data.get(full_uuid(rule.service_data), b"")
    return advertisement.manufacturer.get(-1 if rule.manufacturer is None else rule.manufacturer, b"")


def _at(data: bytes, rule: CounterRule) -> Counter | None:
    width = rule.width_bits // 8
    found = data[rule.offset : rule.offset + width]
    return Counter(int.from_bytes(found, rule.byte_order), rule.width_bits) if len(found) == width else None


def _bthome(data: bytes, _: CounterRule) -> Counter | None:
    """Return the counter of BTHome v2 (bthome.io/format, /encryption).

    Encrypted data has 32 bits, little endian, before the 4 bytes of the MIC. Other data may begin with the packet id (0x00).
    """
    if not data:
        return None
    objects = _bthome_objects(data)
    if data[0] & _ENCRYPTED:
        found = objects[-_COUNTER_AND_MIC_BYTES:-4]
        return Counter(int.from_bytes(found, "little"), 32) if len(found) == 4 else None
    return Counter(objects[1], 8) if len(objects) >= 2 and objects[0] == 0 else None


def _bthome_objects(data: bytes) -> bytes:
    """Return what follows the first byte and the address that may follow it."""
    return data[1 + (_ADDRESS_BYTES if data[:1] and data[0] & _HAS_ADDRESS else 0) :]


FINDERS: dict[str, Callable[[bytes, CounterRule], Counter | None]] = {"at": _at, "bthome": _bthome}
"""Functions that find the counter in a device's data, by the names that profiles use."""
