"""The CloudEvents SDKs for Python, JavaScript and Go: each reads Kafka topics and shows the events that it found."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat

from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed

FOLDER = Path(__file__).parent
GO_READER = FOLDER.parents[2] / ".fogline" / "bin" / "cloudevents-go"
LIMIT_S = 60
_ATTRIBUTES = ("id", "source", "type", "subject", "datacontenttype")
_NO_EXTENSIONS = {*_ATTRIBUTES, "specversion", "time", "partitionkey"}

Shown = dict[str, Any]
"""An event as an SDK gives it: topic, attributes, `extensions`, and `data` (the record's bytes) in base64."""


def python(bootstrap: str, topics: Mapping[str, int]) -> Iterator[Shown]:
    """By `cloudevents` and confluent-kafka."""
    clients = KafkaClients({"bootstrap.servers": bootstrap})
    for stored in read_committed(clients, {(topic, 0): None for topic in topics}):
        event = from_kafka(KafkaMessage(headers=dict(stored.headers), key=stored.key, value=stored.value), JSONFormat())
        found = event.get_attributes()
        extensions = {name: value for name, value in found.items() if name not in _NO_EXTENSIONS}
        attributes = {name: found[name] for name in _ATTRIBUTES}
        yield {"topic": stored.topic, **attributes, "data": _base64(stored.value), "extensions": extensions}


def javascript(bootstrap: str, topics: Mapping[str, int]) -> Iterator[Shown]:
    """By `cloudevents` and kafkajs, which has no codec but gzip."""
    folder = FOLDER / "cloudevents-js"
    assert (folder / "node_modules" / "kafkajs").exists(), "kafkajs is not installed: run deploy/setup/setup.sh tests"
    options = {"bootstrap": bootstrap, "group": f"js-{os.getpid()}", "topics": topics}
    return _printed(["node", str(folder / "read.js"), json.dumps(options)])


def go(bootstrap: str, topics: Mapping[str, int]) -> Iterator[Shown]:
    """By `sdk-go` and Sarama."""
    assert GO_READER.exists(), f"{GO_READER} is not built: run deploy/setup/setup.sh tests"
    return _printed([str(GO_READER), bootstrap, *topics])


def _printed(command: Sequence[str]) -> Iterator[Shown]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return (json.loads(line) for line in done.stdout.splitlines())


def expected(stored: CommittedRecord) -> Shown:
    """The event that a committed record holds, by the binary mode of CloudEvents' Kafka binding."""
    headers = {name: value.decode() for name, value in stored.headers}
    attributes = {name: headers[f"ce_{name}"] for name in _ATTRIBUTES[:-1]}
    extensions = {name[3:]: value for name, value in headers.items() if name.startswith("ce_")}
    return {
        "topic": stored.topic,
        **attributes,
        "datacontenttype": headers["content-type"],
        "data": _base64(stored.value),
        "extensions": {name: value for name, value in extensions.items() if name not in _NO_EXTENSIONS},
    }


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
