"""What bridge and API tell systemd, over a real socket: they are ready, they make progress, and why they wait."""

import asyncio
import contextlib
import os
import signal
import socket
import sys

import pytest

from e2e.http_api import api
from fogline_lab.amqp import within
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess

LIMIT_S = 30
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


async def test_an_api_whose_reader_of_kafka_has_ended_makes_no_progress(line):
    async with api(line, port=1) as served:
        await within(served.api.answers(), "the API does not answer", LIMIT_S)
        served.api.context.tail.stop()
        await asyncio.to_thread(served.api.context.tail.join, LIMIT_S)
        task = asyncio.create_task(served.api.answers())
        done, _ = await asyncio.wait([task], timeout=0.1)
        assert not done
        task.cancel()
