"""What bridge and API tell systemd, over a real socket: they are ready, they make progress, and why they wait."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading

import pytest

from e2e.http_api import api
from fogline.process.service_manager import watched
from fogline_cloud.kafka import consumer_thread, topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_lab.kafka_broker import free_port
from fogline_lab.line.line import serving
from fogline_lab.supervisor import ChildProcess

LIMIT_S = 60
PATIENCE_US = 300_000
SILENCE_S = 3 * PATIENCE_US / 1e6


@pytest.fixture
def manager(folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(folder / "notify"))
        listening.settimeout(LIMIT_S)
        yield listening


def start(folder, part, kafka, tenant):
    """A process of `fogline`, not awaited."""
    text = f'tenant = "{tenant}"\nshards = 2\n[kafka]\n"bootstrap.servers" = "{kafka}"\n'
    text += f'[{part}]\nlisten = "127.0.0.1:0"\n[operator]\nbridge = "127.0.0.1:1"\nuser = "api"\npassword_file = "password"\n'
    (folder / "cloud.toml").write_text(text)
    command = [sys.executable, "-m", "fogline_cloud.cli.main", part, "run", "--insecure-dev", "--config", folder / "cloud.toml"]
    environment = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": str(PATIENCE_US)}
    process = ChildProcess(part, command, folder / f"{part}.log", environment=environment)
    process.start()
    return process


def told_until(manager, wanted):
    """Return what was told up to a message."""
    told = [manager.recv(4096).decode()]
    while told[-1] != wanted:
        told.append(manager.recv(4096).decode())
    return told


@pytest.mark.parametrize("part", ["bridge", "api"])
def test_a_process_tells_that_it_is_ready_and_of_progress_only_while_it_makes_some(line, kafka, folder, manager, part):
    process = start(folder, part, kafka.bootstrap, line.tenant)
    try:
        assert told_until(manager, "READY=1") == ["READY=1"]
        told_until(manager, "WATCHDOG=1")
        os.kill(process.pid, signal.SIGSTOP)
        manager.settimeout(SILENCE_S)
        with contextlib.suppress(TimeoutError):
            told = [manager.recv(4096) for _ in range(100)]  # what it had told before
            pytest.fail(f"a stopped process told {told}")
        os.kill(process.pid, signal.SIGCONT)
        manager.settimeout(LIMIT_S)
        told_until(manager, "WATCHDOG=1")
    finally:
        process.kill()
        process.join()


def test_a_process_that_finds_no_kafka_tells_why_it_ends(folder, manager):
    process = start(folder, "bridge", f"127.0.0.1:{free_port()}", "acme")
    try:
        told = manager.recv(4096).decode()
    finally:
        process.join()
    assert told.startswith("STATUS=")
    assert "Kafka" in told


class BlockingConsumer:
    """A consumer whose polls block while `is_free` is not set."""

    def __init__(self, consumer, is_free):
        self._consumer, self._is_free = consumer, is_free

    def __getattr__(self, name):
        return getattr(self._consumer, name)

    def poll(self, timeout):
        assert self._is_free.wait(LIMIT_S), "the test did not free its consumer"
        return self._consumer.poll(timeout)

    def consume(self, count, timeout):
        assert self._is_free.wait(LIMIT_S), "the test did not free its consumer"
        return self._consumer.consume(count, timeout)


@pytest.fixture
def watched_here(manager, folder, monkeypatch):
    """This process has a service manager, and no consumer may be in its poll for longer than two seconds."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", str(PATIENCE_US))
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setattr(consumer_thread, "STUCK_S", 2.0)


async def is_killed_while(answers, manager, is_free, topic):
    """Block the consumers: progress ends, and the status names the topic. Free them: progress goes on."""

    def told():
        told_until(manager, "WATCHDOG=1")
        is_free.clear()
        for message in iter(lambda: manager.recv(4096).decode(), None):
            if message.startswith("STATUS=no progress") and topic in message:
                break
        manager.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            pytest.fail(f"a stuck process told {manager.recv(4096)}")
        is_free.set()
        manager.settimeout(LIMIT_S)
        assert told_until(manager, "STATUS=")[0] == "WATCHDOG=1"

    async with watched(answers):
        await asyncio.to_thread(told)


async def test_a_bridge_whose_group_member_is_stuck_in_its_poll_makes_no_progress(line, manager, watched_here, monkeypatch):
    is_free, make = threading.Event(), KafkaClients.member
    monkeypatch.setattr(KafkaClients, "member", lambda *arguments: BlockingConsumer(make(*arguments), is_free))
    is_free.set()
    async with serving(line) as bridge:
        await is_killed_while(bridge.answers, manager, is_free, topics.telemetry(line.tenant))


async def test_an_api_whose_reader_is_stuck_in_its_poll_makes_no_progress(line, manager, watched_here, monkeypatch):
    is_free, make = threading.Event(), KafkaClients.reader
    monkeypatch.setattr(KafkaClients, "reader", lambda *arguments, **more: BlockingConsumer(make(*arguments, **more), is_free))
    is_free.set()
    async with api(line, port=1) as served:
        await is_killed_while(served.api.answers, manager, is_free, topics.commands(line.tenant))
