"""The keys of a device on `fogline.credentials` (compacted, key = device; partition = the device's shard), sealed. Pure."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fogline.documents.json_document import read_document
from fogline.events.event import rfc3339
from fogline.gateway.device_credentials import DeviceCredentials, DeviceKeys, EndedKeys, key_name
from fogline_cloud.credentials.vault import Vault

_Ms = Annotated[int, Meta(ge=0, le=2**53)]


class CredentialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a device. `last`: the highest number that a key of it ever had. `changed_ms`: milliseconds since 1970.

    `ended`: the latest keys that count no longer.
    """

    version: Annotated[int, Meta(ge=1, le=2**53)]
    changed_ms: _Ms
    changed_by: Annotated[str, Meta(max_length=512)]
    last: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    keys: DeviceKeys
    ended: EndedKeys = []


def seal_record(vault: Vault, device: str, record: CredentialRecord) -> bytes:
    """Return the value of the Kafka record."""
    return vault.seal(device, msgspec.json.encode(record))


def open_record(vault: Vault, device: str, sealed: bytes) -> CredentialRecord:
    """Return the record of a Kafka record's value. Raises `Poison` (`sealed`, `malformed`), which repeats no secret."""
    return read_document(vault.open(device, sealed), CredentialRecord, f"the record of the keys of {device}")


def credentials_of(device: str, record: CredentialRecord) -> DeviceCredentials:
    """Return what gateways get."""
    return DeviceCredentials(device=device, version=record.version, keys=record.keys, ended=record.ended)


def key_facts(device: str, record: CredentialRecord, now_ms: int) -> dict[str, Any]:
    """Return what people may see of a device's keys: no secret."""
    return {
        "device": device,
        "version": record.version,
        "changed": rfc3339(record.changed_ms * 1_000_000),
        "changed_by": record.changed_by,
        "keys": [
            {
                "number": key.number,
                "kind": key_name(key)[0],
                "identity": key_name(key)[1],
                "until": rfc3339(key.until_ms * 1_000_000) if key.until_ms else None,
                "valid": key.valid_at(now_ms),
            }
            for key in record.keys
        ],
    }
