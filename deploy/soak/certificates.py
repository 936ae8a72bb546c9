"""Certificates of a soak: gateways renew theirs by themselves again and again, and the bridges' are replaced once."""

import asyncio
import ssl
import time
from collections import Counter
from pathlib import Path

from cryptography import x509

from demo.certificates import FOLDER, HOST, issue_bridge, serial_number
from demo.workspace import Workspace
from fogline_cloud.authority.ca_folder import CaFolder
from soak.verdict import CertificateCounts

SHOWN_LIMIT_S = 120.0
"""The longest until a bridge shows its new certificate: it may be away."""
ANSWER_S, LOOK_S = 2.0, 1.0


def count_certificates(workspace: Workspace, minutes: float, seconds: float, replaced: int) -> CertificateCounts:
    """Read the counts from the authority's files and from the logs. `seconds`: length of the run. Raises `Misconfigured`."""
    known = CaFolder.open(workspace.folder / FOLDER).known()
    issued = Counter(each.issued.name for each in known)
    bridges = [line for name in workspace.bridges for line in _lines(workspace.logs / f"{name}.log")]
    gateways = [line for name in workspace.gateways for line in _lines(workspace.logs / f"{name}.log")]
    return CertificateCounts(
        minutes,
        renewed={name: issued[name] - 1 for name in workspace.gateways},  # the first is that of the enrolment
        wanted=int(seconds / 60 / minutes),
        ended=sum("is closed: its certificate: it has expired" in line for line in bridges),
        expired=sum("a connection is refused" in line and "expired" in line for line in bridges),
        failed=sum("was not renewed" in line for line in gateways),
        replaced=replaced,
        bridges=len(workspace.bridges),
    )


async def replace_bridge_certificates(workspace: Workspace) -> int:
    """Issue a new certificate to each bridge, and put it in place of the former. Returns how many bridges show theirs.

    Raises `Misconfigured`.
    """
    shown = 0
    for bridge, port in zip(workspace.bridges, workspace.ports.amqp, strict=True):
        made = workspace.folder / f"{bridge}-new"
        await asyncio.to_thread(issue_bridge, bridge, made, workspace.cloud, workspace.logs / "issue.log")
        serial = serial_number(made / f"{bridge}.pem")
        for name in (f"{bridge}.pem", f"{bridge}.key"):
            (made / name).replace(workspace.folder / name)
        shown += await _shows(port, serial)
    return shown


async def _shows(port: int, serial: str) -> bool:
    """Return True if the bridge shows this certificate in time."""
    deadline = time.monotonic() + SHOWN_LIMIT_S
    while time.monotonic() < deadline:
        if await asyncio.to_thread(_shown, port) == serial:
            return True
        await asyncio.sleep(LOOK_S)
    return False


def _shown(port: int) -> str:
    try:
        found = ssl.get_server_certificate((HOST, port), timeout=ANSWER_S)
    except OSError:
        return ""
    return format(x509.load_pem_x509_certificate(found.encode()).serial_number, "x")


def _lines(log: Path) -> list[str]:
    return log.read_text("utf-8", "replace").splitlines()
