"""Who was heard, as which device, and when: pure. Bounded, however many addresses are made up."""

from collections import OrderedDict
from collections.abc import Container, Sequence
from dataclasses import dataclass

import msgspec

from fogline.advertisement import Advertisement
from fogline.report import Report
from fogline_edge.profiles.ble import BleProfile, device_of, fits, listed_name

FORGOTTEN_S = 600.0
"""A device that is not listed and was not heard for so long makes room for another one."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A device of the settings. `silence_s`: for how long it may say nothing. `device`: its name, by default the profile's."""

    address: str
    profile: BleProfile
    silence_s: float
    report: Report
    device: str | None = None


@dataclass(slots=True)
class Known:
    """A device that is listed, or was heard. `heard_s`: when, `None` for not yet. `silent`: for longer than it may.

    `since_s`: silence before that does not count. `named`: whether `device` is its name, and not just its address until what
    names it is heard; a name is for good. `refused`: why it cannot have its name.
    `steady_since_s`: since when it has advertised without a long break.
    """

    address: str
    device: str
    profile: BleProfile
    report: Report
    silence_s: float | None = None
    heard_s: float | None = None
    since_s: float = 0.0
    rssi: int | None = None
    silent: bool = False
    named: bool = True
    refused: str | None = None
    steady_since_s: float = 0.0


class Roster:
    """`profiles`: whose devices are taken although they are not listed, the first that fits; `most` of them.

    `steady_s`: a device advertises all the time if it has done so for that long, without a break of that length.
    """

    def __init__(
        self, listed: Sequence[Listed], profiles: Sequence[BleProfile], most: int, now_s: float, steady_s: float = 10.0
    ) -> None:
        self._steady_s = steady_s
        self._profiles = tuple(profiles)
        self._reports = {each.name: report_of(each) for each in profiles}
        self._most = most
        self._listed = {each.address: each for each in listed}
        self.listed = {
            each.address: Known(
                each.address, each.address, each.profile, each.report, each.silence_s, since_s=now_s, named=False
            )
            for each in listed
        }
        for each in sorted(listed, key=lambda each: each.device is None):
            self._name(self.listed[each.address])
        self.others: OrderedDict[str, Known] = OrderedDict()

    def hear(self, address: str, advertisement: Advertisement, rssi: int | None, now_s: float) -> Known | None:
        """Whose advertisement this is, if it is to be taken. Raises `OverflowError` if there is no room for one more."""
        known = self.listed.get(address)
        if known is not None:
            self._advertised(known, rssi, now_s)
            if not known.named:
                self._name(known, advertisement)
            return known if known.named and fits(known.profile, advertisement) else None
        return self._hear_other(address, advertisement, rssi, now_s)

    def lives(self, address: str, now_s: float) -> None:
        """A listed device said something in another way: over its link."""
        known = self.listed.get(address)
        if known is not None:
            self._note(known, known.rssi, now_s)

    def fall_silent(self, now_s: float, excused: Container[str] = ()) -> list[Known]:
        """The listed devices that have just been silent for longer than they may.

        `excused`: addresses of those that may say nothing for as long as they like; their silence begins after that.
        """
        found = []
        for known in self.listed.values():
            if known.address in excused:
                known.since_s = now_s
            last_s = known.since_s if known.heard_s is None else max(known.heard_s, known.since_s)
            if not known.silent and known.silence_s is not None and now_s - last_s >= known.silence_s:
                known.silent = True
                found.append(known)
        return found

    def _name(self, known: Known, advertisement: Advertisement | None = None) -> None:
        """Give a listed device its name, if it can be told and no other listed device has it."""
        device = self._listed[known.address].device or listed_name(known.profile, known.address, advertisement)
        if device is None:
            return
        known.refused = next(
            (
                f"its name {device} is that of {each.address} as well; give it another: device = ... in ble.devices"
                for each in self.listed.values()
                if each is not known and each.named and each.device == device
            ),
            None,
        )
        if known.refused is None:
            known.device, known.named = device, True

    def _hear_other(self, address: str, advertisement: Advertisement, rssi: int | None, now_s: float) -> Known | None:
        for profile in self._profiles:
            device = device_of(profile, address, advertisement)
            if device is not None:
                break
        else:
            return None
        known = self.others.get(address)
        if known is None:
            self._make_room(now_s)
            known = self.others[address] = Known(address, device, profile, self._reports[profile.name])
        self.others.move_to_end(address)
        known.device, known.profile, known.report = device, profile, self._reports[profile.name]
        self._advertised(known, rssi, now_s)
        return known

    def _make_room(self, now_s: float) -> None:
        if len(self.others) < self._most:
            return
        oldest = next(iter(self.others.values()))
        if oldest.heard_s is not None and now_s - oldest.heard_s < FORGOTTEN_S:
            raise OverflowError
        self.others.popitem(last=False)

    def is_steady(self, known: Known, now_s: float) -> bool:
        """Whether it advertises all the time."""
        return now_s - known.steady_since_s >= self._steady_s

    def _advertised(self, known: Known, rssi: int | None, now_s: float) -> None:
        if known.heard_s is None or now_s - known.heard_s > self._steady_s:
            known.steady_since_s = now_s
        self._note(known, rssi, now_s)

    @staticmethod
    def _note(known: Known, rssi: int | None, now_s: float) -> None:
        known.heard_s, known.rssi, known.silent = now_s, rssi, False


def report_of(profile: BleProfile, min_interval_s: float | None = None) -> Report:
    """When an advertisement is news, by the profile; or by the settings of one device."""
    report = profile.report.report
    return report if min_interval_s is None else msgspec.structs.replace(report, min_interval_s=min_interval_s)
