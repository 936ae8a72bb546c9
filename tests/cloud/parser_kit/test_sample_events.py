from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.parser_kit.sample_events import read_events


def test_events_are_read_with_their_defaults(folder: Path) -> None:
    path = folder / "events.jsonl"
    path.write_text(
        '{"topic": "a/b", "base64": "AP8="}\n\n'
        '{"subject": "c", "body": "\\u00e9", "content_type": "text/plain", "device": "d", "type": "alarm", "adapter": "coap",'
        ' "time": "2026-02-03T04:05:06Z", "properties": "firmware=1"}\n'
    )
    first, second = read_events(path)
    assert (first.subject, first.data, first.content_type, first.device) == (
        "a/b",
        b"\0\xff",
        "application/octet-stream",
        "device-1",
    )
    assert (second.subject, second.data, second.content_type) == ("c", "\u00e9".encode(), "text/plain")
    assert (second.device, second.type, second.adapter, second.properties) == ("d", "alarm", "coap", "firmware=1")
    assert (first.time, second.time) == (None, "2026-02-03T04:05:06Z")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"events.jsonl:2: "),
        ('{"body": "1", "colour": 1}', r"events.jsonl:2: .*colour"),
        ('{"topic": "a"}', "give the body either as body"),
        ('{"body": "1", "base64": "AA=="}', "give the body either as body"),
        ('{"base64": "A"}', "base64: "),
        ('{"body": "1", "topic": "a", "subject": "b"}', "they are the same"),
        ('{"body": "1", "time": "yesterday"}', "yesterday"),
    ],
)
def test_a_wrong_line_is_named(folder: Path, line: str, message: str) -> None:
    path = folder / "events.jsonl"
    path.write_text(f'{{"body": "1"}}\n{line}\n')
    with pytest.raises(Misconfigured, match=message):
        read_events(path)


def test_a_file_without_events_is_refused(folder: Path) -> None:
    (folder / "empty").touch()
    for name, message in (("empty", "no event"), ("none", "No such file")):
        with pytest.raises(Misconfigured, match=message):
            read_events(folder / name)
