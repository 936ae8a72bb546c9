"""Patterns of the settings for topics and paths: words, `{device}` for one level, and MQTT's wildcards `+` and `#`."""

import re
from collections.abc import Callable

from fogline.errors import Misconfigured

DEVICE = "{device}"


def compile_pattern(
    key: str, pattern: str, *, needs_device: bool, is_topic: bool = True
) -> Callable[[str], re.Match[str] | None]:
    """Return the matcher of a pattern, whose first group is the device. Raises `Misconfigured`, naming the setting `key`.

    A topic may have empty levels, and one that begins with `$` matches no leading wildcard [MQTT-4.7.2-1].
    """
    levels = pattern.split("/")
    words = [each for each in levels if each not in (DEVICE, "+", "#")]
    bad = any(set(each) & set("+#{}\0") or not (each or is_topic) for each in words)
    if bad or not pattern or not needs_device <= levels.count(DEVICE) <= 1 or "#" in levels[:-1]:
        once = "exactly once" if needs_device else "once"
        raise Misconfigured(f"{key} = {pattern!r}: a level is a word, + or {DEVICE} ({once}); # only as the last level")
    parts = [{DEVICE: "([^/]+)", "+": "[^/]*"}.get(each, re.escape(each)) for each in levels]
    if levels == ["#"]:
        parts = [".*"]
    elif levels[-1] == "#":
        parts[-2:] = [f"{parts[-2]}(?:/.*)?"]
    not_system = r"(?!\$)" if is_topic and levels[0] not in words else ""
    return re.compile(not_system + "/".join(parts), re.DOTALL).fullmatch
