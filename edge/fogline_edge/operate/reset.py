"""`fogline-edge reset`: wipes a gateway, so that its machine can be given away or become another gateway."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fogline.errors import FoglineError, Misconfigured
from fogline.process.checkup import Finding, Grade
from fogline_edge.history import history_file
from fogline_edge.machine import run_record
from fogline_edge.operate.backup import named_files
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.file import copy_file, data_folder, full_record
from fogline_edge.outbox.file.data_folder import DataFolder
from fogline_edge.settings import EdgeSettings, load


def reset(config: Path) -> Iterator[Finding]:
    """Revoke the certificate, then delete data, keys, certificates and settings. Yields each step; `FAIL`: it was not done.

    Raises `Misconfigured`, before it has changed anything, if the gateway runs or its settings cannot be read.
    """
    settings = load(config)
    folder = DataFolder(Path(settings.data), f"{settings.tenant}/{settings.gateway}")
    try:
        yield from _waiting(settings)
        yield _revoked(settings)
        yield from _wiped(config, settings, folder.path)
    finally:
        folder.close()
    yield Finding(Grade.OK, "disk", "a card keeps deleted data until it is overwritten", "Destroy it if that matters")


def _waiting(settings: EdgeSettings) -> Iterator[Finding]:
    """Say how many events are deleted that the bridge does not have."""
    if not (Path(settings.data) / data_folder.FILE).exists():
        return
    try:
        backlog = read_status(Path(settings.data))["backlog"]
    except Misconfigured as error:
        yield Finding(Grade.WARN, "outbox", f"it is deleted, and could not be read: {error}")
        return
    if backlog:
        yield Finding(Grade.WARN, "outbox", f"{backlog:,} events are deleted that the bridge had not accepted")


def _revoked(settings: EdgeSettings) -> Finding:
    if settings.uplink.tls is None or settings.uplink.tls.certificate is None:
        return Finding(Grade.OK, "certificate", "this gateway has none")
    if copy_file.read_copy(Path(settings.data)).replaced:
        why = "it is not revoked, because the gateway that replaced this one may use it still"
        return Finding(Grade.WARN, "certificate", why, _by_hand(settings))
    from fogline_edge.operate.enrolment import revoke  # noqa: PLC0415 - see `fogline_edge.cli.run_enroll`

    try:
        return Finding(Grade.OK, "certificate", f"the bridge has revoked {revoke(settings)}")
    except FoglineError as error:
        return Finding(Grade.FAIL, "certificate", f"it is not revoked: {error}", _by_hand(settings))


def _by_hand(settings: EdgeSettings) -> str:
    from cryptography import x509  # noqa: PLC0415 - see `fogline_edge.cli.run_enroll`

    assert settings.uplink.tls is not None
    try:
        pem = Path(settings.uplink.tls.certificate or "").read_bytes()
        serial = format(x509.load_pem_x509_certificate(pem).serial_number, "x")
    except (OSError, ValueError):
        serial = settings.gateway
    return f"On the authority's machine: fogline ca revoke {serial}"


def _wiped(config: Path, settings: EdgeSettings, data: Path) -> Iterator[Finding]:
    """Delete the files. The settings are the last, so that a reset that was interrupted can be repeated."""
    named = named_files(config, settings)
    inside = sorted(named.inside.values(), key=lambda path: path.name == config.name)
    databases = (f"{data_folder.FILE}*", f"{history_file.NAME}*", f"{copy_file.FILE}*", "credentials.*")
    patterns = (*databases, full_record.FILE, run_record.FILE, run_record.NOTE, "lock")
    found = [*(each for pattern in patterns for each in sorted(data.glob(pattern))), *inside]
    deleted = 0
    for path in found:
        try:
            path.unlink()
            deleted += 1
        except OSError as error:
            yield Finding(Grade.FAIL, "files", f"{path} is not deleted: {error.strerror}", "Delete it")
    yield Finding(Grade.OK, "files", f"{deleted} files are deleted in {data} and {config.absolute().parent}")
    yield from map(partial(_kept, "files"), (*named.outside, *sorted(data.glob("*"))))


def _kept(name: str, path: Path) -> Finding:
    return Finding(Grade.WARN, name, f"{path} is kept: it is not this gateway's alone", "Delete it if nothing else uses it")
