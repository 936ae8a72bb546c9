"""Security in `[kafka]`: the names of files, secrets in files of their own, and settings that contradict each other.

The keys are librdkafka's. One is ours: `KEY_file` names a file with the value of KEY, for example `sasl.password_file`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fogline.errors import Misconfigured
from fogline.installed import credential
from fogline.process.files.tls_files import check_private
from fogline.process.files.user_file import read_text

KafkaValue = str | int | float | bool

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SYSTEM_AUTHORITIES: Final = "probe"
"""The value of `ssl.ca.location` and `https.ca.location` that stands for the authorities that the system trusts."""
_SECRETS: Final = frozenset(
    {
        *("sasl.password", "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret"),
        *("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.pem"),
        *("sasl.oauthbearer.assertion.private.key.passphrase", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password"),
    }
)
_PRIVATE_FILES: Final = ("ssl.key.location", "sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.private.key.file")
_OF_FILE: Final = "_file"
_PEM: Final = ("https.ca", "ssl.ca", "ssl.certificate", "ssl.key")


def resolve_files(kafka: Mapping[str, KafkaValue], path: Path) -> dict[str, KafkaValue]:
    """Return `[kafka]` of the settings file `path` with absolute names of files. A credential of that name comes first.

    Raises `Misconfigured` if the settings file holds a secret and everybody may read it.
    """
    secret = next((key for key in kafka if key in _SECRETS), None)
    if secret is not None:
        check_private(str(path), f"[kafka] {secret}")
    folder = path.parent.absolute()

    def found(name: str) -> str:
        return str(credential(name) or folder / name)

    return {key: found(str(value)) if _names_file(key, value) else value for key, value in kafka.items()}


def read_secrets(kafka: Mapping[str, KafkaValue]) -> dict[str, KafkaValue]:
    """Return librdkafka's settings: `[kafka]` with secrets instead of the names of their files.

    Raises `Misconfigured` for a file that is missing or that everybody may read, and for settings that contradict each other.
    """
    settings = dict(kafka)
    for key in [key for key in kafka if key.endswith(_OF_FILE)]:
        meant = key.removesuffix(_OF_FILE)
        if meant in kafka:
            raise Misconfigured(f"[kafka] has both {meant} and {key}: delete one of them")
        settings[meant] = _secret(str(settings.pop(key)), key)
    for key, value in settings.items():
        if key in _PRIVATE_FILES:
            check_private(str(value), f"[kafka] {key}")
        elif _names_file(key, value) and not os.access(str(value), os.R_OK):
            raise Misconfigured(f"[kafka] {key} = {value}: there is no such file, or it cannot be read")
    _check(settings)
    return settings


def with_content(kafka: Mapping[str, KafkaValue]) -> dict[str, KafkaValue]:
    """Return librdkafka's settings with secrets and PEM texts instead of the names of their files, for another machine.

    Raises `Misconfigured` as `read_secrets` does. A file that librdkafka takes by its name only keeps it.
    """
    found = read_secrets(kafka)
    for what in _PEM:
        path = found.get(key := f"{what}.location", SYSTEM_AUTHORITIES)
        if path != SYSTEM_AUTHORITIES:
            del found[key]
            found[f"{what}.pem"] = _pem(str(path), key)
    return found


def _pem(path: str, key: str) -> str:
    try:
        return Path(path).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"[kafka] {key} = {path}: it cannot be read as PEM: {error}") from None


def mechanism_of(kafka: Mapping[str, KafkaValue]) -> str:
    """Return the SASL mechanism, or an empty text."""
    return str(kafka.get("sasl.mechanisms", kafka.get("sasl.mechanism", "")))


def _names_file(key: str, value: KafkaValue) -> bool:
    return key.endswith((".location", ".file", _OF_FILE)) and value != SYSTEM_AUTHORITIES


def _secret(path: str, key: str) -> str:
    check_private(path, f"[kafka] {key}")
    found = read_text(path, f"[kafka] {key}").rstrip("\r\n")
    if not found:
        raise Misconfigured(f"[kafka] {key} = {path}: the file is empty")
    return found


def _check(kafka: Mapping[str, KafkaValue]) -> None:
    """Raise `Misconfigured` if the connection would be less secure than the settings look, or cannot log in."""
    protocol = str(kafka.get("security.protocol", "plaintext")).upper()
    for part, wanted in (("SSL", "SSL or SASL_SSL"), ("SASL", "SASL_SSL")):
        without = next((key for key in kafka if key.startswith(f"{part.lower()}.")), None)
        if without is not None and part not in protocol.split("_"):
            raise Misconfigured(f"[kafka] {without} needs security.protocol = {wanted}, but that is {protocol}")
    if not protocol.startswith("SASL"):
        return
    mechanism = mechanism_of(kafka)
    if mechanism not in MECHANISMS:
        raise Misconfigured(f"[kafka] sasl.mechanism = {mechanism or 'nothing'}: expected {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER" and str(kafka.get("sasl.oauthbearer.method")).lower() != "oidc":
        raise Misconfigured('[kafka] sasl.oauthbearer.method: expected "oidc"; settings cannot get a token in another way')
