"""Writes a gateway's first settings file, for `fogline-edge init`, which asks three questions, and `fogline-edge enroll`."""

import json
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fogline.address import is_identifier
from fogline.errors import Misconfigured
from fogline.installed import SETTINGS, STATE
from fogline.process.console.terminal import tell
from fogline.process.files.bridge_address import BridgeAddress, parse_bridge
from fogline.transport.loopback import is_loopback
from fogline_edge.settings import ProxySettings

FILE = "edge.toml"
CERTIFICATE, CA = "gateway.pem", "ca.pem"
"""The gateway's certificate and key in one file, so that they are replaced in one step; the authority's certificate."""


class FirstSettings(NamedTuple):
    """The answers to the three questions."""

    tenant: str
    gateway: str
    bridge: str

    @property
    def with_tls(self) -> bool:
        """True if the bridge is on another machine."""
        return not is_loopback(_bridge(self.bridge, "--bridge").host)


class Question(NamedTuple):
    """One question. `check`: raises `Misconfigured` for a wrong answer. `usual`: the answer of an empty line, if any."""

    text: str
    check: Callable[[str], object]
    usual: str = ""


def _bridge(text: str, key: str) -> BridgeAddress:
    """Return a bridge's address, with TLS or without it. Raises `Misconfigured`."""
    return parse_bridge(text, key, tls=not text.startswith("ws://") and not is_loopback(text.rpartition(":")[0].strip("[]")))


def _check_name(name: str) -> None:
    if not is_identifier(name):
        raise Misconfigured(f"{name!r}: expected 1 to 64 of A-Z a-z 0-9 . _ : -")


def _questions() -> dict[str, Question]:
    host = socket.gethostname().partition(".")[0]
    return {
        "tenant": Question("Tenant, the owner of the devices (`tenant` in the bridge's cloud.toml)", _check_name),
        "gateway": Question("Name of this gateway, unique within the tenant", _check_name, host if is_identifier(host) else ""),
        "bridge": Question("Address of the bridge", lambda text: _bridge(text, "bridge"), "127.0.0.1:5672"),
    }


def ask(given: Mapping[str, str | None]) -> FirstSettings:
    """Return the answers in `given`, and ask for those that it lacks. Raises `Misconfigured` if nobody can be asked."""
    answers: dict[str, str] = {}
    missing = [f"--{name}" for name in FirstSettings._fields if given.get(name) is None]
    if missing and not sys.stdin.isatty():
        raise Misconfigured(f"nobody can be asked, because the standard input is no terminal: add {', '.join(missing)}")
    for name, question in _questions().items():
        found = given.get(name)
        if found is None:
            answers[name] = _answer(question)
            continue
        try:
            question.check(found)
        except Misconfigured as error:
            raise Misconfigured(f"--{name}: {error}") from None
        answers[name] = found
    return FirstSettings(**answers)


def _answer(question: Question) -> str:
    """Ask until the answer is right. Raises `Misconfigured` at the end of the input."""
    while True:
        sys.stderr.write(f"{question.text}{f' [{question.usual}]' if question.usual else ''}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise Misconfigured("the input has ended before all questions were answered")
        answer = line.strip() or question.usual
        try:
            question.check(answer)
        except Misconfigured as error:
            tell(str(error))
        else:
            return answer


def require_none(path: Path) -> None:
    """Raise `Misconfigured` if there are settings already."""
    if path.exists():
        raise Misconfigured(f"{path} exists already, and is not overwritten: move it away, or name another folder with --out")


def write_first(path: Path, first: FirstSettings, *, tls: bool, proxy: ProxySettings | None = None) -> None:
    """Write the settings file. `tls`: with the files of `fogline-edge enroll`. `proxy`: on the way to the bridge.

    Raises `Misconfigured` if there is a file already.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            data = str(STATE) if path.parent == SETTINGS else "data"
            file.write(settings_text(first, tls=tls, data=data, proxy=proxy))
    except FileExistsError:
        require_none(path)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot write: {error.strerror}") from None


def next_steps(first: FirstSettings, folder: Path) -> list[str]:
    """Return the commands that follow `fogline-edge init`, which has written to `folder`."""
    packaged = folder == SETTINGS
    config, out = ("", "") if packaged or folder == Path() else (f" --config {folder / FILE}", f" --out {folder}")
    start = "sudo systemctl enable --now fogline-edge"
    if not first.with_tls:
        allow = "echo 'OPTIONS=--insecure-dev' | sudo tee /etc/default/fogline-edge"
        return [allow, start] if packaged else [f"fogline-edge run --insecure-dev{config}"]
    return [
        f"fogline gateway add {first.gateway}    # on the bridge's machine; it prints TOKEN",
        f"{'sudo -u fogline ' if packaged else ''}fogline-edge enroll - --bridge {first.bridge}{out}",
        start if packaged else f"fogline-edge run{config}",
    ]


def settings_text(first: FirstSettings, *, tls: bool, data: str = "data", proxy: ProxySettings | None = None) -> str:
    """Return the settings. What the gateway does not need at first is there as a comment. `data`: folder of the outbox."""
    mark = "" if tls else "# "
    lines = (
        "# Settings of a Fogline gateway. docs/reference/settings.md has every key. After a change: fogline-edge check",
        f'tenant = "{first.tenant}"',
        f'gateway = "{first.gateway}"',
        f'data = "{data}"'.ljust(30) + " # folder of the outbox, from this one",
        '# metrics = "127.0.0.1:9464"   # for Prometheus',
        "",
        "[uplink]",
        f'bridge = "{first.bridge}"',
        f"{mark}renew = true                   # the certificate, by itself",
        "",
        f"{mark}[uplink.tls]                   # the files that `fogline-edge enroll` writes",
        f'{mark}ca = "{CA}"',
        f'{mark}certificate = "{CERTIFICATE}"',
        f'{mark}key = "{CERTIFICATE}"',
        "",
        *_proxy_lines(proxy),
        "[mqtt]                         # MQTT for devices: on this machine, 127.0.0.1:1883",
        "# port = 1883                  # needed beside [mqtt.tls] only, to keep it",
        '# users = "users"              # devices log in: mosquitto_passwd -H sha512-pbkdf2 -c users NAME',
        "",
        "# [mqtt.tls]                   # MQTT over TLS for devices on the network, port 8883: docs/two-machines.md",
        f'# certificate = "{CERTIFICATE}"  # with a host name: fogline gateway add {first.gateway} --host HOST',
        f'# key = "{CERTIFICATE}"',
        f'# ca = "{CA}"                # devices may log in by a certificate: fogline ca issue device NAME',
        "",
        "# [mqtt.websocket]             # MQTT over WebSocket, port 8083: docs/devices-mqtt.md",
        "",
        "# [coap]                       # CoAP for devices on this machine, port 5683; [coap.dtls]: DTLS: docs/devices-coap.md",
        "",
        "# [http]                       # HTTP for devices on this machine, port 8080; [http.tls]: HTTPS: docs/devices-http.md",
        "",
        "# [ble]                        # Bluetooth LE; `fogline-edge ble scan` shows what is near",
        '# profiles = ["bthome"]',
    )
    return "".join(f"{line}\n" for line in lines)


def _proxy_lines(proxy: ProxySettings | None) -> list[str]:
    if proxy is None:
        return []
    file = [] if proxy.password_file is None else [f"password_file = {json.dumps(proxy.password_file)}"]
    return [
        "[uplink.proxy]                 # the way to the bridge: docs/way-out.md",
        f"url = {json.dumps(proxy.url)}",
        *file,
        "",
    ]
