"""Java, driven by py4j, and Apache Qpid JMS: nothing of ours is compiled. Calls block, so each runs in a thread."""

import asyncio
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from contracts.foreign.clients import CLIENT_LIMIT_S, Id, Note, Reply, Sent
from fogline.installed import find_jars, find_java
from fogline_lab.amqp import within

START_LIMIT_S = 60.0
CALL_LIMIT_MS = 60_000
_OPTIONS = "&".join(
    ["jms.forceSyncSend=true", *(f"jms.{name}Timeout={CALL_LIMIT_MS}" for name in ("connect", "request", "send", "close"))]
)
_AUTO_ACKNOWLEDGE, _NOT_PERSISTENT, _PERSISTENT, _PRIORITY = 1, 1, 2, 4
_PREFIXES = {"ulong": "ID:AMQP_ULONG:", "uuid": "ID:AMQP_UUID:", "binary": "ID:AMQP_BINARY:"}
"""Of a correlation id (AMQP JMS mapping 1.0, section 3.2.1.1); a string has none."""


@contextmanager
def java(*more: str) -> Iterator[Any]:
    """The classes of a Java of its own, with the client's jars: `jvm.jakarta.jms...`. `more`: further lists of jars.

    If Spark has run in this process, py4j asks Spark's Java about every exception. Here it does not.
    """
    spark = find_spec("pyspark")
    assert spark is not None, "pyspark is not installed: run deploy/setup/setup.sh"
    assert spark.submodule_search_locations, "pyspark is no package"
    py4j = next(Path(spark.submodule_search_locations[0], "jars").glob("py4j-*.jar"))
    path = ":".join(map(str, [py4j, *(jar for name in ("amqp", *more) for jar in find_jars(name))]))
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [find_java(), *options, "-cp", path, "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with (
        patch.object(java_gateway, "get_return_value", protocol.get_return_value),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            parameters = GatewayParameters(port=_port(process), enable_memory_management=False)
            gateway = JavaGateway(gateway_parameters=parameters)
            yield gateway.jvm
            gateway.close()
        finally:
            process.kill()


def _port(process: "subprocess.Popen[str]") -> int:
    """The port that it prints as soon as it listens."""
    assert process.stdout is not None
    first: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: first.put(process.stdout.readline()), daemon=True).start()
    try:
        return int(first.get(timeout=START_LIMIT_S))
    except queue.Empty:
        raise AssertionError(f"Java did not start in {START_LIMIT_S:.0f} s") from None


class QpidJms:
    """See `ForeignClient`."""

    def __init__(self, port: int, tenant: str, jvm: Any, security: str = "") -> None:
        self._tenant = tenant
        url = f"amqp{'s' if security else ''}://127.0.0.1:{port}?{_OPTIONS}{security}"
        self._factory = jvm.org.apache.qpid.jms.JmsConnectionFactory(url)

    async def commands(self, device: str, ids: Sequence[Id], *, durable: bool = False) -> tuple[list[Sent], list[Reply]]:
        return await self._run(lambda session: self._commands(session, device, ids, durable=durable))

    async def command_by_default(self, device: str) -> tuple[list[Sent], list[Reply]]:
        """A command sent as JMS sends whatever nobody has set anything about."""
        return await self._run(lambda session: self._commands(session, device, [("string", "switch-1")], by_default=True))

    async def send(self, target: str | None, *notes: Note) -> list[Sent]:
        def work(session: Any) -> list[Sent]:
            producer = session.createProducer(session.createQueue(target) if target else None)
            return [_send(producer, _event(session, note), session.createQueue(note.to) if note.to else None) for note in notes]

        return await self._run(work)

    async def refused(self, *, senders: Sequence[str] = (), receivers: Sequence[str] = ()) -> list[Sent]:
        def work(session: Any) -> list[Sent]:
            sending = [_ended(session.createProducer, session.createQueue(each)) for each in senders]
            return sending + [_ended(session.createConsumer, session.createQueue(each)) for each in receivers]

        return await self._run(work)

    async def events(self, address: str, count: int, selector: str | None = None) -> list[tuple[str, str]]:
        def work(session: Any) -> list[tuple[str, str]]:
            consumer = session.createConsumer(session.createQueue(address), *([selector] if selector else []))
            found = [consumer.receive(CALL_LIMIT_MS) for _ in range(count)]
            assert consumer.receiveNoWait() is None, "nothing is left; the client asks for it by draining its credit"
            return [(each.getStringProperty("device_id"), each.getText()) for each in found]

        return await self._run(work)

    async def oversize(self, target: str, size_bytes: int) -> tuple[Sent, Sent]:
        def work(session: Any) -> tuple[Sent, Sent]:
            big, small = (session.createProducer(session.createQueue(target)) for _ in range(2))
            end = _ended(big.send, session.createTextMessage("x" * size_bytes))
            return end, _send(small, session.createTextMessage("small"))

        return await self._run(work)

    async def temporary_queue(self) -> Sent:
        """An address that the bridge should invent."""
        return await self._run(lambda session: _ended(session.createTemporaryQueue))

    async def transaction(self) -> Sent:
        """A message within a transaction of AMQP."""
        return await self._run(lambda _: None, transacted=True)

    def _commands(
        self, session: Any, device: str, ids: Sequence[Id], *, durable: bool = False, by_default: bool = False
    ) -> tuple[list[Sent], list[Reply]]:
        answers = session.createQueue(f"command_response/{self._tenant}/jms-1")
        consumer = session.createConsumer(answers)
        producer = session.createProducer(session.createQueue(f"command/{self._tenant}/{device}"))
        outcomes = []
        for kind, value in ids:
            message = session.createTextMessage('{"on":true}')
            message.setJMSType("switch")
            message.setJMSCorrelationID(_PREFIXES.get(kind, "") + value)
            message.setJMSReplyTo(answers)
            outcomes.append(_ended(producer.send, message) if by_default else _send(producer, message, durable=durable))
        return outcomes, [_reply(consumer) for outcome in outcomes if outcome.state == "accepted"]

    async def _run(self, work: Callable[[Any], Any], *, transacted: bool = False) -> Any:
        def connected() -> Any:
            connection = self._factory.createConnection()
            try:
                connection.start()
                if transacted:
                    return _ended(connection.createSession, True, 0)
                return work(connection.createSession(False, _AUTO_ACKNOWLEDGE))
            finally:
                connection.close()

        return await within(asyncio.to_thread(connected), "Java does not come back", CLIENT_LIMIT_S)


def _event(session: Any, note: Note) -> Any:
    """JMS has no word for the content type of a text: the attribute of CloudEvents says it."""
    message = session.createTextMessage(note.body)
    if note.subject:
        message.setJMSType(note.subject)
    type_ = {"cloudEvents_datacontenttype": note.content_type} if note.content_type else {}
    for name, value in (type_ | dict(note.properties)).items():
        message.setStringProperty(name, value)
    return message


def _send(producer: Any, message: Any, to: Any = None, *, durable: bool = False) -> Sent:
    rest = (message, _PERSISTENT if durable else _NOT_PERSISTENT, _PRIORITY, 0)
    try:
        producer.send(*((to, *rest) if to else rest))
    except Py4JJavaError as error:
        return _told(error, "rejected")
    return Sent("accepted")


def _ended(work: Callable[..., object], *arguments: object) -> Sent:
    try:
        work(*arguments)
    except Py4JJavaError as error:
        return _told(error, "ended")
    return Sent("accepted")


def _told(error: Py4JJavaError, state: str) -> Sent:
    """An error of JMS: its text ends with the condition."""
    text = str(error.java_exception.getMessage())
    told = re.fullmatch(r"(.*) \[condition = (.*)\]", text)
    if told:
        return Sent(state, told[2], told[1])
    return Sent("released" if "released" in text.lower() else text)


def _reply(consumer: Any) -> Reply:
    message = consumer.receive(CALL_LIMIT_MS)
    assert message is not None, "no answer came"
    told = message.getJMSCorrelationID()
    kind, prefix = next(((kind, each) for kind, each in _PREFIXES.items() if told.startswith(each)), ("string", ""))
    value = told.removeprefix(prefix)
    return Reply(
        correlation=(kind, value.lower() if kind == "binary" else value),
        status=message.getIntProperty("status"),
        state=message.getStringProperty("state"),
        device=message.getStringProperty("device_id"),
        body=message.getText(),
    )
