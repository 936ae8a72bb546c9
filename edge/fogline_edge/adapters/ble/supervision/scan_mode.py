"""Decides whether the next scanner is active or passive, and why. Pure.

| setting `ble.scan` | the scan is passive if |
|---|---|
| `auto` (default) | no profile needs an active one, and BlueZ offers passive scans |
| `passive` | no profile says `scan = "active"`, and BlueZ offers them |
| `active` | never |

A passive scan that BlueZ refuses becomes active. So does one that is silent while an active one is not: some controllers report
a device once only. Both are remembered until BlueZ or the adapter is another one.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

SILENCES = 3
"""A passive scan may be silent for this many times as long as an active one: BlueZ reports changed advertisements only."""
_NO_MONITORS = (
    "BlueZ offers no passive scan, which takes 5.56 with Experimental = true in /etc/bluetooth/main.conf, and Linux 5.10"
)


class ScanReason(StrEnum):
    """Why the present scan is active or passive. The value is the label of its metric."""

    PASSIVE = "passive"
    SETTING = "setting"
    PROFILE = "profile"
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    SILENT = "silent"
    SENSOR = "sensor"


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan, active or passive. `why`: the reason in words."""

    reason: ScanReason = ScanReason.SETTING
    why: str = "the settings say so (ble.scan)"

    @property
    def passive(self) -> bool:
        """True if the scan is passive."""
        return self.reason is ScanReason.PASSIVE

    @property
    def mode(self) -> Literal["active", "passive"]:
        """The mode in BlueZ's and bleak's words."""
        return "passive" if self.passive else "active"


@dataclass(slots=True)
class ScanChoice:
    """The choice for one radio. `needs_active`: why the profiles need an active scan, None if they do not."""

    setting: Literal["active", "passive", "auto"] = "active"
    needs_active: str | None = None
    _seen: Scan | None = None
    _on_trial: bool = False
    _silent_s: float = 0.0

    def next(self, *, offered: bool) -> Scan:
        """Return the scan to start. `offered`: BlueZ offers passive scans."""
        if self.setting == "active":
            return Scan()
        if self.needs_active is not None:
            return Scan(ScanReason.PROFILE, self.needs_active)
        if not offered:
            return Scan(ScanReason.UNSUPPORTED, _NO_MONITORS)
        if self._seen is not None:
            return self._seen
        if self._on_trial:
            return Scan(ScanReason.SILENT, f"the passive scan received nothing for {self._silent_s:.0f} s")
        return Scan(ScanReason.PASSIVE, "BlueZ offers it, and no profile needs more")

    def replaces(self, scan: Scan, *, offered: bool) -> bool:
        """Return True if the next scan is of the other kind than the running `scan`."""
        return self.next(offered=offered).passive is not scan.passive

    def refused(self, why: str) -> None:
        """A passive scan did not start."""
        self._seen = Scan(ScanReason.REFUSED, f"BlueZ refused a passive scan: {why}")

    def silent(self, scan: Scan, silent_s: float) -> None:
        """The running scan has received nothing for too long. After a passive one an active one is tried, and the reverse."""
        self._on_trial, self._silent_s = scan.passive, silent_s

    def received(self, scan: Scan) -> None:
        """The scan after a silent one has received something. If it is the active one on trial, it stays."""
        if self._on_trial and scan.reason is ScanReason.SILENT:
            self._seen = Scan(ScanReason.SILENT, f"{scan.why}, and an active one does not stay silent")
        self._on_trial = False

    def insufficient(self, why: str) -> None:
        """A sensor sends something that a passive scan misses."""
        self._seen = Scan(ScanReason.SENSOR, why)

    def forget(self) -> None:
        """BlueZ or the adapter is another one, so what was seen of the former one says nothing."""
        self._seen, self._on_trial = None, False
