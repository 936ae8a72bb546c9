"""The adapters that BlueZ tells of: which of them is used, and how often it was unplugged or switched off. Pure."""

from typing import Any


class Adapters:
    """By path, with their properties. `wanted`: the one to use, by its name or address; by default the first that is on.

    `unplugged`, `switched_off`: how often the one that is used was. What the gateway itself switches off, to switch it on
    again, is not counted.
    """

    def __init__(self, wanted: str | None) -> None:
        self.unplugged = 0
        self.switched_off = 0
        self._wanted = wanted
        self._found: dict[str, dict[str, Any]] = {}
        self._used: str | None = None
        self._asked: set[str] = set()

    def found(self, adapters: dict[str, dict[str, Any]]) -> None:
        """These there are, and no others."""
        self._found = adapters

    def added(self, path: str, properties: dict[str, Any]) -> None:
        """One was plugged in."""
        self._found[path] = properties

    def removed(self, path: str) -> None:
        """One was unplugged."""
        self.unplugged += path == self.chosen
        self._found.pop(path, None)
        self._asked.discard(path)

    def changed(self, path: str, properties: dict[str, Any]) -> None:
        """Some properties are others now."""
        if path not in self._found:
            return
        powered = properties.get("Powered")
        if powered is False and path == self.chosen:
            self.switched_off += path not in self._asked
        if powered is not None:
            self._asked.discard(path)
        self._found[path].update(properties)

    def going_off(self, path: str) -> None:
        """The gateway switches it off itself: that is no loss. BlueZ may tell of it later than it answers."""
        self._asked.add(path)

    def is_back(self, path: str) -> None:
        """The gateway has switched it on again, or cannot: whoever switches it off from now on is another."""
        self._asked.discard(path)

    def forget(self) -> None:
        """Nothing is known of them any more."""
        self._found = {}
        self._asked.clear()

    @property
    def chosen(self) -> str | None:
        """The path of the one that is used: the one in use while it is on, else the first that is, else the first."""
        fitting = [path for path, properties in sorted(self._found.items()) if self._fits(path, properties)]
        powered = [path for path in fitting if self._found[path].get("Powered")]
        if self._used not in powered:
            self._used = next(iter([*powered, *fitting]), None)
        return self._used

    def powered(self, path: str) -> bool:
        """Whether it is on."""
        return bool(self._found[path].get("Powered"))

    def blocked(self, path: str) -> bool:
        """Whether BlueZ says that rfkill blocks it, as BlueZ 5.68 and later do."""
        return self._found[path].get("PowerState") == "off-blocked"

    def discovering(self, path: str) -> bool:
        """Whether it scans, for whatever program."""
        return bool(self._found[path].get("Discovering", True))

    def _fits(self, path: str, properties: dict[str, Any]) -> bool:
        """Whether this is the adapter of the settings."""
        names = (path.rpartition("/")[2].upper(), str(properties.get("Address", "")).upper())
        return self._wanted is None or self._wanted.upper() in names
