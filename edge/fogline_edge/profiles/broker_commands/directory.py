"""The devices behind a broker: their names there, and which of them are reachable. Pure.

A device is reachable if it is known, if nothing says that it is offline, and if the program that speaks to it is online. What
is known must outlive a restart, because a broker sends a retained message only to a new session.
"""

from collections.abc import Iterator, Mapping

import msgspec

from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline_edge.profiles.names import MAX_NAMES


class _Note(msgspec.Struct, frozen=True):
    name: str
    online: bool = True


class Directory:
    """Devices by their identifiers. `notes`: the notes of a former run. `program`: the device that stands for the program.

    `listed`: the program publishes the list of its devices (`replace`), so that names of a former run are not used.
    """

    def __init__(self, notes: Mapping[str, bytes], *, listed: bool = False, program: str | None = None) -> None:
        self._notes = {device: note for device, body in notes.items() if (note := _decode(body)) is not None}
        self._names = {} if listed else {device: note.name for device, note in self._notes.items()}
        self._program = program
        self._changed: set[str] = set()
        self._unkept: dict[str, bytes | None] = {}

    def __iter__(self) -> Iterator[str]:
        """The known devices."""
        return iter(list(self._names))

    def __len__(self) -> int:
        return len(self._names)

    @property
    def offline(self) -> int:
        """The number of known devices that are offline."""
        return sum(not self._is_online(device) for device in self._names)

    def name_of(self, device: str) -> str | None:
        """Return the name of a known device at the broker."""
        return self._names.get(device)

    def is_reachable(self, device: str) -> bool:
        """Return True if a command for this device may be published."""
        return device in self._names and self._is_online(device) and (self._program is None or self._is_online(self._program))

    def hear(self, device: str, name: str) -> None:
        """Note that a device exists. At most `MAX_NAMES` are noted."""
        if device not in self._names and len(self._names) < MAX_NAMES:
            self._names[device] = name
            self._changed.add(device)
            self._note(device, _Note(name, self._is_online(device)))

    def replace(self, names: Mapping[str, str]) -> None:
        """Replace the known devices by those of the program's list: names by device."""
        gone = self._names.keys() - names.keys()
        self._changed |= gone | (names.keys() - self._names.keys())
        self._names = dict(names)
        for device in gone:
            self._note(device, None)

    def set_online(self, device: str, name: str, *, online: bool) -> None:
        """Note whether a device is online, as its program says."""
        if online is not self._is_online(device) and (device in self._notes or len(self._notes) < MAX_NAMES):
            self._note(device, _Note(name, online))
            self._changed |= self._names.keys() if device == self._program else {device}

    def take_changed(self) -> set[str]:
        """Return the devices that may have become reachable or unreachable since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def take_unkept(self) -> dict[str, bytes | None]:
        """Return the notes that have changed since the last call, by device, for the next run. `None`: no note."""
        unkept, self._unkept = self._unkept, {}
        return unkept

    def _is_online(self, device: str) -> bool:
        note = self._notes.get(device)
        return note is None or note.online

    def _note(self, device: str, note: _Note | None) -> None:
        if note is None:
            if self._notes.pop(device, None) is None:
                return
        else:
            self._notes[device] = note
        self._unkept[device] = None if note is None else msgspec.json.encode(note)


def is_offline(note: bytes) -> bool:
    """Return True for a note about a device that is offline."""
    found = _decode(note)
    return found is not None and not found.online


def _decode(body: bytes) -> _Note | None:
    try:
        return read_document(body, _Note, "a note about a device")
    except Poison:  # it is our own file; a damaged note is as good as none
        return None
