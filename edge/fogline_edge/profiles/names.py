"""Keeps the device names that a program has published."""

from collections.abc import Mapping
from itertools import islice

from fogline.address import device_identifier, is_identifier

MAX_NAMES = 4096


class Names:
    """The identifiers of names, as last published. `known`: those from before a restart."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def identifier(self, name: str) -> str:
        """Return the identifier that was published for `name`, or else the name's own. Raises `Poison('bad-identifier')`."""
        return self._known.get(name) or device_identifier(name, "friendly name")

    def learn(self, published: Mapping[str, str]) -> dict[str, str | None]:
        """Replace all names by `published` (at most `MAX_NAMES`). Returns the changes, with None for a name that is gone."""
        wanted = dict(islice((each for each in published.items() if is_identifier(each[1])), MAX_NAMES))
        changed: dict[str, str | None] = dict.fromkeys(self._known.keys() - wanted.keys())
        changed.update({name: value for name, value in wanted.items() if self._known.get(name) != value})
        self._known = wanted
        return changed
