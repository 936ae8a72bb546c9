"""The further devices that a user speaks for, by shell patterns of the settings: pure."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate

from fogline.address import device_identifier
from fogline.errors import Misconfigured, Poison

_PATTERN = re.compile(r"([A-Za-z0-9._:\-*?]|\[!?[A-Za-z0-9._:\-]+\])+")


class DeviceAcl:
    """A table of the settings: user -> patterns of device names. Raises `Misconfigured` for an entry that can match nothing.

    `table`: its name in the settings, such as `mqtt.acl`.
    """

    def __init__(self, entries: Mapping[str, Sequence[str]], table: str) -> None:
        names: dict[str, str] = {}
        for user, patterns in entries.items():
            try:
                names[user] = device_identifier(user, "user")
            except Poison as error:
                raise Misconfigured(f"{table}: {error}") from None
            for each in patterns:
                if _PATTERN.fullmatch(each) is None:
                    raise Misconfigured(
                        f"{table}: {user} = {each!r}: expected a pattern of device names, made of A-Z a-z 0-9 . _ : - and "
                        "of * ? [abc] [!abc], for example 'press-*'"
                    )
        self._others = {
            names[user]: re.compile("|".join(map(translate, patterns))) for user, patterns in entries.items() if patterns
        }

    def others(self, user: str) -> re.Pattern[str] | None:
        """Return the pattern of the further devices that `user`, an identifier, speaks for; None if there are none."""
        return self._others.get(user)
