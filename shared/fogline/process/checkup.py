"""`doctor`: findings, their output, and the checks that gateway and cloud side share.

A check yields findings. An error that it raises becomes a finding too, so one fault hides no other.
"""

import json
import os
import platform
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from fogline.errors import FoglineError, Unreachable
from fogline.process.console import terminal
from fogline.process.console.listing import utc
from fogline.process.files.bridge_address import BridgeAddress, parse_bridge
from fogline.process.kernel_clock import machine_is_synchronized
from fogline.transport.proxy.proxy_address import ProxyAddress, authority
from fogline.transport.proxy.proxy_errors import cannot_connect, proxy_ended, too_slow
from fogline.transport.proxy.tunnel import Tunnel, tunnel_through
from fogline.transport.tls import tls_reason
from fogline.transport.websocket_request import WebSocketError, WebSocketRequest

CONNECT_S = 5.0
_DAY_S = 86_400
_CERTIFICATE_WARN_DAYS = 7
_FULL_SHARE = 0.05
_PIECE_BYTES = 4096
_HEADERS = {False: b"AMQP\x00\x01\x00\x00", True: b"AMQP\x03\x01\x00\x00"}
"""Protocol headers (AMQP 1.0 part 2, section 2.2, and part 5, section 5.3.1), by whether TLS is in use."""


class Grade(StrEnum):
    """The grade of a finding. `FAIL`: events are not stored or do not arrive until somebody acts."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Finding(NamedTuple):
    """One line. `remedy` is empty if nothing is to be done."""

    grade: Grade
    subject: str
    text: str
    remedy: str = ""


Check = Callable[[], Iterable[Finding]]


def examine(checks: dict[str, Check]) -> Iterator[Finding]:
    """Yield the findings of all checks, each named by its subject."""
    for subject, check in checks.items():
        try:
            yield from check()
        except FoglineError as error:
            yield Finding(Grade.FAIL, subject, str(error))
        except OSError as error:
            yield Finding(Grade.WARN, subject, f"it cannot be checked: {error}")


def show(findings: Iterable[Finding], *, as_json: bool) -> int:
    """Print findings as they come. Return the exit status: 1 if one is a FAIL."""
    seen = []
    for each in findings:
        seen.append(each)
        if not as_json:
            remedy = f". {each.remedy}" if each.remedy else ""
            terminal.show(f"{each.grade:<4}  {each.subject:<12}  {each.text}{remedy}")
    if as_json:
        terminal.show(json.dumps([each._asdict() for each in seen]))
    return int(any(each.grade is Grade.FAIL for each in seen))


def check_versions(product: str, version: str, *more: str) -> Iterator[Finding]:
    """Yield the versions of the product, Python and the system."""
    texts = (f"{product} {version}", f"Python {platform.python_version()}", f"{platform.system()} {platform.release()}", *more)
    yield Finding(Grade.OK, "versions", f"{', '.join(texts)}, {platform.machine()}")


def check_clock() -> Iterator[Finding]:
    """Tell if the clock is synchronized."""
    if machine_is_synchronized():
        yield Finding(Grade.OK, "clock", "synchronized")
    else:
        text = "neither the kernel nor systemd-timesyncd says that it is synchronized"
        yield Finding(Grade.WARN, "clock", text, "Run: timedatectl set-ntp true. Is NTP (UDP port 123) reachable?")


def check_certificate(path: str, subject: str, remedy: str) -> Iterator[Finding]:
    """Tell for how many days the first certificate of a PEM file is valid."""
    from cryptography import x509  # noqa: PLC0415 - takes 6 MB, which a gateway that runs does not need

    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        yield Finding(Grade.FAIL, subject, f"{path} holds no readable certificate: {error}", remedy)
        return
    yield graded_end(certificate.not_valid_after_utc, subject, f"certificate {path}", remedy)


def certificate_problem(path: str, key: str) -> str:
    """Return why the first certificate of a PEM file cannot be used now, "" if it can. The text names `key`."""
    from cryptography import x509  # noqa: PLC0415 - takes 6 MB, which a gateway that runs does not need

    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        return f"{key} = {path}: no readable certificate: {error}"
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc <= now:
        return f"{key} = {path}: the certificate has ended at {utc(certificate.not_valid_after_utc)}"
    if certificate.not_valid_before_utc > now:
        begins = utc(certificate.not_valid_before_utc)
        return f"{key} = {path}: the certificate is not valid before {begins}; is this machine's clock right?"
    return ""


def graded_end(end: datetime, subject: str, what: str, remedy: str, warn_days: float = _CERTIFICATE_WARN_DAYS) -> Finding:
    """Return the finding for something that is valid until `end`: a warning if fewer than `warn_days` are left."""
    days = (end - datetime.now(UTC)).total_seconds() / _DAY_S
    if days <= 0:
        return Finding(Grade.FAIL, subject, f"{what} has ended at {utc(end)}", remedy)
    grade = Grade.WARN if days < warn_days else Grade.OK
    return Finding(grade, subject, f"{what}: {days:.0f} days left", remedy if grade is Grade.WARN else "")


def check_bridge(
    endpoint: str, key: str, context: ssl.SSLContext | None, proxy: ProxyAddress | None = None
) -> Iterator[Finding]:
    """Resolve, connect and exchange the protocol header. Nothing is opened, so a connection that exists is not replaced.

    With `proxy`, the proxy's name is resolved here, and the bridge's there.
    """
    bridge = parse_bridge(endpoint, key, tls=context is not None)
    host, port = bridge.host, bridge.port
    yield (resolved := _resolve(host, port, key) if proxy is None else _resolve(proxy.host, proxy.port, "[uplink.proxy]"))
    if resolved.grade is Grade.FAIL:
        return
    try:
        yield from _greet(bridge, context, proxy)
    except ssl.SSLCertVerificationError as error:
        text = f"{endpoint}: its certificate is not accepted: {error.verify_message}"
        yield Finding(
            Grade.FAIL, "bridge", text, "Compare the authority (ca) with the bridge's, its host names, and both clocks"
        )
    except ssl.SSLError as error:
        yield Finding(
            Grade.FAIL, "bridge", f"{endpoint}: {tls_reason(error)}", f"Check that {key} is the bridge's port for TLS"
        )
    except Unreachable as error:
        yield Finding(Grade.FAIL, "proxy", str(error))
    except WebSocketError as error:
        yield Finding(Grade.FAIL, "bridge", f"{endpoint}: {error}", "It is bridge.websocket in the bridge's cloud.toml")
    except OSError as error:
        text = f"{endpoint} does not answer: {error.strerror or error}"
        yield Finding(Grade.FAIL, "bridge", text, f"Check {key}, that the bridge runs, and firewalls between")


def _resolve(host: str, port: int, key: str) -> Finding:
    try:
        addresses = sorted({str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as error:  # UnicodeError: no host can have such a name
        text = f"{host} has no address: {getattr(error, 'strerror', None) or error}"
        return Finding(Grade.FAIL, "DNS", text, f"Check {key}, and the name servers in /etc/resolv.conf")
    return Finding(Grade.OK, "DNS", f"{host} is {', '.join(addresses)}")


def _connect(host: str, port: int, proxy: ProxyAddress | None) -> socket.socket:
    """Return a socket to the bridge. Raises `OSError`, and `Unreachable` for what a proxy says."""
    if proxy is None:
        return socket.create_connection((host, port), CONNECT_S)
    tunnel = tunnel_through(proxy, host, port)
    try:
        connected = socket.create_connection((proxy.host, proxy.port), CONNECT_S)
    except OSError as error:
        raise cannot_connect(proxy, error) from None
    try:
        _pass_through(connected, tunnel)
    except TimeoutError:
        connected.close()
        raise too_slow(proxy, authority(host, port), CONNECT_S) from None
    except (OSError, EOFError):
        connected.close()
        raise proxy_ended(proxy, authority(host, port)) from None
    except Unreachable:
        connected.close()
        raise
    return connected


def _pass_through(connected: socket.socket, tunnel: Tunnel) -> None:
    """Exchange bytes with the proxy until the peer follows. Raises `Unreachable`, `OSError`, and `EOFError` at its end."""
    while not tunnel.done:
        connected.sendall(tunnel.data_to_send())
        if not (data := connected.recv(_PIECE_BYTES)):
            raise EOFError
        tunnel.receive(data)


def _greet(bridge: BridgeAddress, context: ssl.SSLContext | None, proxy: ProxyAddress | None) -> Iterator[Finding]:
    host, port = bridge.host, bridge.port
    with _connect(host, port, proxy) as plain:
        if proxy is not None:
            yield Finding(Grade.OK, "proxy", f"{proxy} connects to {authority(host, port)}")
        connected = plain if context is None else context.wrap_socket(plain, server_hostname=host)
        with connected:
            end_text = connected.getpeercert() if isinstance(connected, ssl.SSLSocket) else None
            answer = _answer(connected, bridge.websocket, _HEADERS[context is not None])
    if not answer.startswith(b"AMQP"):
        text = f"{bridge} is not a bridge: it answers {answer!r}" if answer else f"{bridge} closed the connection"
        yield Finding(
            Grade.FAIL, "bridge", text, "Check address and port. A bridge with TLS needs [uplink.tls] or [operator.tls]"
        )
        return
    yield Finding(Grade.OK, "bridge", f"{bridge} answers" + (" over TLS" if context is not None else ""))
    if end_text:
        end = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(end_text["notAfter"])), UTC)
        yield graded_end(end, "TLS", "certificate of the bridge", "Renew it on the bridge: fogline ca issue bridge")


def _answer(connected: socket.socket, request: WebSocketRequest | None, header: bytes) -> bytes:
    """Return the bridge's answer to a protocol header, empty at its end. Raises `OSError` and `WebSocketError`."""
    if request is None:
        connected.sendall(header)
        return connected.recv(8)
    from fogline.amqp.security import SUBPROTOCOL  # noqa: PLC0415 - as the next
    from fogline.transport.websocket import WebSocket  # noqa: PLC0415 - takes 3 MB

    websocket, answer, sent = WebSocket(SUBPROTOCOL, request), b"", False
    while not answer and not websocket.over:
        connected.sendall(websocket.data_to_send())
        if websocket.ready and not sent:
            sent = True
            connected.sendall(websocket.wrap(header))
        if not (data := connected.recv(_PIECE_BYTES)):
            return b""
        answer = websocket.receive(data)
    return answer[:8]


def check_room(folder: Path, subject: str, wanted_bytes: int = 0) -> Iterator[Finding]:
    """Tell how much room a folder's file system has. `wanted_bytes`: what may still be written there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        remedy = "Correct its owner or mode, or run this as the user of the service"
        yield Finding(Grade.FAIL, subject, f"{folder} is not writable for this user", remedy)
        return
    found = os.statvfs(folder)
    if found.f_flag & os.ST_RDONLY:
        yield Finding(Grade.FAIL, subject, f"the file system of {folder} is read-only", "Check the disk: dmesg")
        return
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    text = f"{megabytes(free)} of {megabytes(size)} are free at {folder}"
    if free < max(size * _FULL_SHARE, 1):
        yield Finding(Grade.FAIL, subject, text, "Delete what is not needed: without room nothing is stored")
    elif free < wanted_bytes:
        remedy = f"{megabytes(wanted_bytes)} may be needed: make room, or lower the bound"
        yield Finding(Grade.WARN, subject, text, remedy)
    else:
        yield Finding(Grade.OK, subject, text)


def megabytes(count: float) -> str:
    """Return a number of bytes for people."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
