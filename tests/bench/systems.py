"""The systems that the gateway's rows compare, each with a peer that accepts everything: our gateway, a mosquitto bridge."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from certificates import lines, make_certificates
from processes import BIN, Bench, Failed, Metered, gateway_settings, port_of
from usage import Usage

from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE
from fogline_edge.operate.status import read_events, read_status
from fogline_lab.mosquitto import bridge_lines, find_mosquitto, write_broker
from fogline_lab.supervisor import ChildProcess, wait_for_port

READY_S = 30.0
DRAIN_S = 300.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class System:
    """A running system.

    `helpers`: the processes behind it, the peer among them. `settled`: True when nothing waits in it. `check_file`: raises
    `Failed` if its end left work.
    """

    port: int
    process: Metered
    peer: ChildProcess
    helpers: tuple[ChildProcess, ...]
    settled: Callable[[], bool] = lambda: True
    check_file: Callable[[], None] = lambda: None

    def drain(self, events: int) -> dict[str, int]:
        """Wait until the peer has every event and the system has nothing left. Returns the peer's counts."""
        counted = wait_for_events(self.peer, events, DRAIN_S)
        wait_until(self.settled, DRAIN_S, "the events to be settled")
        return counted

    def end(self) -> Usage:
        """Stop in order. Returns what the process used in all."""
        used = self.process.end()
        self.check_file()
        return used


@contextmanager
def gateway(bench: Bench, folder: Path, settings: tuple[str, ...], *, tls: bool = False) -> Iterator[System]:
    """Run our gateway with an empty outbox in `folder`, connected to a peer that accepts every batch unread."""
    certificates = bench.folder / "certificates-gateway"
    if tls:
        make_certificates(certificates, "bench", ["gw"])
        settings = (*settings, *lines(certificates, "gw", "uplink.tls"))
    with bench.child("null_peer", *bench.program("null_peer"), *([certificates] if tls else [])) as peer:
        path = gateway_settings(folder, "gw", peer.next_line()["port"], more=settings)
        with bench.metered("gateway", BIN / "fogline-edge", "run", "--insecure-dev", "--config", path) as process:
            port = port_of(process.child.next_line()["mqtt"])
            wait_until(lambda: bool(counts(peer)["welcomed"]), READY_S, "the gateway's hello")
            data = folder / "data"
            settled = lambda: not read_status(data)["backlog"]
            yield System(port, process, peer, (peer,), settled, lambda: _check_outbox(data))


def _check_outbox(data: Path) -> None:
    log = data / "outbox.db-wal"
    left = [each for each in read_events(data, "event", limit=1000) if STATEMENT_CONTENT_TYPE not in each["body"]]
    if left:
        raise Failed(f"{len(left)} events of the load are left in the outbox")
    if log.exists() and log.stat().st_size:
        raise Failed(f"{log} was not checkpointed")


@contextmanager
def mosquitto(bench: Bench, folder: Path) -> Iterator[System]:
    """Run a broker that keeps its messages in `folder`, and bridges them to a second broker with one subscriber."""
    port, peer_port = free_ports(2)
    program, behind = find_mosquitto(), bench.subfolder("behind")
    with bench.child("peer-broker", program, "-c", write_broker(behind, peer_port), json_lines=False) as peer_broker:
        wait_for_port(peer_broker, peer_port, READY_S)
        with bench.child("mqtt_subscriber", *bench.program("mqtt_subscriber"), peer_port) as peer:
            peer.next_line()
            path = write_broker(folder, port, bridge_lines(peer_port))
            with bench.metered("mosquitto", program, "-c", path, json_lines=False) as process:
                wait_for_port(process.child, port, READY_S)
                peer.next_line(READY_S)
                yield System(port, process, peer, (peer, peer_broker))


def counts(peer: ChildProcess) -> dict[str, int]:
    """Ask a peer for its counts."""
    peer.tell("counts")
    return peer.next_line()


def wait_for_events(peer: ChildProcess, events: int, limit_s: float) -> dict[str, int]:
    """Wait until the peer has counted so many events. Returns its counts."""
    wait_until(lambda: counts(peer)["events"] >= events, limit_s, f"{events} events at the peer")
    return counts(peer)


def wait_until(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    """Poll a condition. Raises `Failed` after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"waited {limit_s:.0f} s in vain for {what}")
        time.sleep(POLL_S)  # other processes answer, and each question costs them time that is measured here


def free_ports(number: int) -> list[int]:
    """Return free TCP ports of loopback."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
