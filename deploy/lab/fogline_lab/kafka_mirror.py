"""MirrorMaker 2 on loopback, from the jars that deploy/setup/setup.sh fetched: copies topics from one Kafka to another.

It runs as docs/lost-site.md describes: dedicated, one way, with the same names, exactly once, and committed records only.
"""

from pathlib import Path
from types import TracebackType
from typing import Self

from fogline.installed import find_jars, find_java
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess

STOP_LIMIT_S = 60.0
PROPERTIES = """\
clusters = old, new
old.bootstrap.servers = {old}
new.bootstrap.servers = {new}
old->new.enabled = true
new->old.enabled = false
topics = hono\\\\..*, fogline\\\\..*
topics.exclude = fogline\\\\.checkpoint\\\\..*
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
old.consumer.isolation.level = read_committed
new.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
sync.topic.acls.enabled = false
sync.group.offsets.enabled = false
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
"""
"""The settings of docs/lost-site.md, but for the addresses."""
_TEST = """\
listeners = http://127.0.0.1:{port}
tasks.max = 2
refresh.topics.interval.seconds = 2
offset.flush.interval.ms = 500
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
"""


class KafkaMirror:
    """One MirrorMaker. A context manager; `kill` and `start` again go on where it was."""

    def __init__(self, folder: Path, *, old: str, new: str, heap: str = "320m") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "mirror.properties"
        settings.write_text(PROPERTIES.format(old=old, new=new) + _TEST.format(port=free_port()))
        options = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        classes = ":".join(map(str, find_jars("mirror")))
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        command = [find_java(), *options, "-cp", classes, main, str(settings)]
        self.process = ChildProcess("MirrorMaker", command, folder / "mirror.log", json_lines=False)

    def start(self) -> Self:
        """Start it. It begins to copy after some seconds."""
        self.process.start()
        return self

    def stop(self) -> None:
        """Stop it in order."""
        self.process.stop(STOP_LIMIT_S)

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
