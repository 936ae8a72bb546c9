"""`fogline device credentials`: the keys with which devices prove their names over CoAP."""

import argparse
import json
import secrets
from typing import Any

import msgspec

from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.documents.document_error import explained
from fogline.errors import Misconfigured, Poison
from fogline.gateway.device_credentials import OSCORE_GATEWAY_ID
from fogline.process.console.command_line import add_limit, counted
from fogline.process.console.listing import show_facts, show_rows
from fogline.process.console.terminal import show, tell
from fogline.process.console.times import seconds
from fogline.process.files.tls_files import check_private
from fogline.process.files.user_file import read_text
from fogline_cloud.cli.common import add_command, add_group, device_argument
from fogline_cloud.cli.operators.operator_link import add_bridge, edit_at_bridge, keys_of
from fogline_cloud.credentials.credential_table import MAX_DEVICES
from fogline_cloud.credentials.key_edits import (
    ADD,
    REVOKE,
    ROTATE,
    KeyBody,
    KeyEdit,
    NewKey,
    NewOscore,
    NewPsk,
    RevokeBody,
    check_key_edit,
)
from fogline_cloud.credentials.vault import make_vault_key
from fogline_cloud.settings import load

EXAMPLE = """\
examples:
  fogline device credentials key > credentials.key        once, for devices.credentials_key of all bridges
  fogline device credentials add lamp-1 --kind psk        prints the key, which is never shown again
  fogline device credentials add lamp-2 --kind oscore --json
  fogline device credentials rotate lamp-1 --overlap 7d   a new key; the former one counts for another week
  fogline device credentials revoke lamp-1 --number 1
  fogline device credentials list

exit status: 0 done, 1 the bridge refuses, 2 the input or the settings are wrong, 130 Ctrl-C
"""
PSK, OSCORE = "psk", "oscore"
_BYTES = 16


def add_credentials(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    raw: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    group = add_group(commands, "credentials", "add, rotate, revoke and list keys of devices", description=__doc__, **raw)
    about = "print a new key for the file devices.credentials_key, with which bridges seal keys of devices"
    add_command(group, "key", run_key, about, config=False, **raw)
    adding = add_command(group, "add", run_add, "give a device a key, and print it once", **raw)
    rotating = add_command(group, "rotate", run_rotate, "give a device a new key in place of the former one", **raw)
    revoking = add_command(group, "revoke", run_revoke, "revoke keys of a device at every gateway", **raw)
    listing = add_command(group, "list", run_list, "print which devices have keys, without the keys", **raw)
    for each in (adding, rotating, revoking):
        each.add_argument("device", type=device_argument, help="the device")
    for each in (adding, rotating):
        each.add_argument("--kind", choices=(PSK, OSCORE), help="psk: for DTLS; oscore: for OSCORE (RFC 8613)")
        each.add_argument("--identity", help="PSK identity (default: the device's name; with rotate, that and / with 8 digits)")
        about = 'file with the key that the device has already, as `--json` prints it at "credential"'
        each.add_argument("--from", dest="source", metavar="FILE", help=about)
    about = "how long the former keys of this kind count still, such as 1d; 0s: not at all (default: 7d)"
    rotating.add_argument("--overlap", default="7d", metavar="TIME", help=about)
    revoking.add_argument("--number", type=counted(10**9), help="only the key with this number of `list` (default: all)")
    about = "and let the device speak without protection again, as if it never had a key"
    revoking.add_argument("--unprotect", action="store_true", help=about)
    listing.add_argument("device", nargs="?", type=device_argument, help="only this device")
    add_limit(listing, 1000, "the first by name", MAX_DEVICES)
    for each in (adding, rotating, revoking, listing):
        add_bridge(each)


def run_key(arguments: argparse.Namespace) -> int:
    """Print a new key for the bridges."""
    key = make_vault_key()
    show(json.dumps({"key": key}) if arguments.json else key)
    return 0


def run_add(arguments: argparse.Namespace) -> int:
    """Give a device a key. Return 1 if the bridge refuses."""
    if arguments.kind is None and arguments.source is None:
        raise Misconfigured("--kind: choose psk (DTLS) or oscore")
    return _give(arguments, ADD, _new_key(arguments, arguments.kind, arguments.identity or arguments.device), 0)


def run_rotate(arguments: argparse.Namespace) -> int:
    """Give a device a new key in place of the former one. Return 1 if the bridge refuses."""
    overlap_s = 0 if arguments.overlap in ("0", "0s") else round(seconds("--overlap", arguments.overlap))
    kind = arguments.kind
    if kind is None and arguments.source is None:
        found = keys_of(arguments, load(arguments.config, kafka=False), arguments.device).records
        kinds = {key["kind"] for each in found for key in each["keys"] if key["valid"]}
        if len(kinds) != 1:
            has = f"keys of {len(kinds)} kinds" if kinds else "no key"
            raise Misconfigured(f"device {arguments.device} has {has}: " + ("choose --kind" if kinds else "add one"))
        (kind,) = kinds
    identity = arguments.identity or f"{arguments.device}/{secrets.token_hex(4)}"
    return _give(arguments, ROTATE, _new_key(arguments, kind, identity), overlap_s)


def run_revoke(arguments: argparse.Namespace) -> int:
    """Revoke keys of a device. Return 1 if the bridge refuses."""
    outcome = _send(arguments, REVOKE, RevokeBody(number=arguments.number, unprotect=arguments.unprotect))
    return _report(arguments, outcome, {})


def run_list(arguments: argparse.Namespace) -> int:
    """Print which keys devices have."""
    found = keys_of(arguments, load(arguments.config, kafka=False), arguments.device or "", limit=arguments.limit)
    if arguments.json:
        show(json.dumps(found.records))
        return 0
    rows = [
        (each["device"], key["number"], key["kind"], key["identity"], key["until"], "valid" if key["valid"] else "ended")
        for each in found.records
        for key in each["keys"] or [{"number": None, "kind": "-", "identity": "-", "until": None, "valid": False}]
    ]
    empty = "no device has a key, or you may not see them (docs/device-credentials.md)"
    show_rows(("device", "number", "kind", "identity", "until", "state"), rows, empty, found.more)
    return 0


def _new_key(arguments: argparse.Namespace, kind: str | None, identity: str) -> NewKey:
    if arguments.source is not None:
        check_private(arguments.source, "--from")
        try:
            found: NewKey = msgspec.json.decode(read_text(arguments.source, "--from"), type=NewKey)
        except msgspec.MsgspecError as error:
            raise Misconfigured(f"--from {arguments.source} is not a key: {explained(error, NewKey)}") from None
        return found
    if kind == PSK:
        return NewPsk(identity=identity, key=secrets.token_bytes(_BYTES))
    return NewOscore(device_id=secrets.token_bytes(4), secret=secrets.token_bytes(_BYTES), salt=secrets.token_bytes(8))


def _give(arguments: argparse.Namespace, action: str, key: NewKey, overlap_s: int) -> int:
    outcome = _send(arguments, action, KeyBody(key=key, overlap_s=overlap_s))
    return _report(arguments, outcome, {"credential": msgspec.to_builtins(key)}, key)


def _send(arguments: argparse.Namespace, action: str, body: KeyBody | RevokeBody) -> Outcome:
    settings, text = load(arguments.config, kafka=False), msgspec.json.encode(body)
    try:
        check_key_edit(KeyEdit(arguments.device, action, "", text))
    except Poison as error:
        raise Misconfigured(str(error)) from None
    return edit_at_bridge(arguments, settings, action, text)


def _report(arguments: argparse.Namespace, outcome: Outcome, found: dict[str, Any], key: NewKey | None = None) -> int:
    done = outcome.state is DeliveryState.ACCEPTED
    why = outcome.description or outcome.condition
    if arguments.json:
        show(json.dumps({"device": arguments.device, "ok": done, "why": why, **(found if done else {})}))
    elif not done:
        tell(f"{why}")
    else:
        tell(f"device {arguments.device}: done" + ("; the key is not shown again" if key is not None else ""))
        if key is not None:
            show_facts(_facts_of(key))
    return 0 if done else 1


def _facts_of(key: NewKey) -> dict[str, Any]:
    """Return what the device needs, in hexadecimal digits."""
    if isinstance(key, NewPsk):
        return {"identity": key.identity, "key": key.key.hex()}
    return {
        "sender": key.device_id.hex(),
        "recipient": OSCORE_GATEWAY_ID.hex(),
        "secret": key.secret.hex(),
        "salt": key.salt.hex(),
        "context": "the name of the gateway that the device speaks to, as bytes (ID Context)",
        "algorithms": "AES-CCM-16-64-128, HKDF SHA-256",
    }
