"""Kafka settings: from librdkafka's words (`[kafka]` in the settings) to those of the Java client in Spark."""

import logging
from collections.abc import Mapping
from pathlib import Path

from fogline.errors import Misconfigured

log = logging.getLogger(__name__)

Scalar = str | int | float | bool

_SAME = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
        "ssl.cipher.suites",
    }
)
_RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "ssl.key.password": "ssl.key.password",
}
_TOGETHER = frozenset(
    {
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
    }
)
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def spark_options(kafka: Mapping[str, Scalar]) -> dict[str, str]:
    """Options `kafka.*` of Spark's source and sink. What has no counterpart is left out, with a line in the log.

    Raises `Misconfigured` for a SASL mechanism that cannot be said in Java, and for a PEM file that cannot be read.
    """
    java: dict[str, str] = {}
    for key, value in kafka.items():
        if key in _SAME or key in _RENAMED:
            java[_RENAMED.get(key, key)] = _plain(value)
        elif key not in _TOGETHER:
            log.info("[kafka] %s has no counterpart in Spark's Kafka client: left out of the flow", key)
    java.update(_sasl(kafka))
    java.update(_tls(kafka))
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    return {f"kafka.{key}": value for key, value in java.items()}


def _plain(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sasl(kafka: Mapping[str, Scalar]) -> dict[str, str]:
    if "sasl.username" not in kafka:
        return {}
    mechanism = str(kafka.get("sasl.mechanisms", kafka.get("sasl.mechanism", "PLAIN")))
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise Misconfigured(f"[kafka] sasl.mechanism = {mechanism}: the flow knows {', '.join(_LOGIN_MODULES)}")
    user, password = (_quoted(str(kafka.get(f"sasl.{what}", ""))) for what in ("username", "password"))
    return {"sasl.jaas.config": f"{module} required username={user} password={password};"}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _tls(kafka: Mapping[str, Scalar]) -> dict[str, str]:
    java: dict[str, str] = {}
    authority = _pem(kafka, "ssl.ca")
    if authority:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    certificate, key = _pem(kafka, "ssl.certificate"), _pem(kafka, "ssl.key")
    if certificate and key:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
    return java


def _pem(kafka: Mapping[str, Scalar], what: str) -> str:
    """PEM text, given in the settings or as a file. Java takes a private key in PKCS #8 only."""
    if f"{what}.pem" in kafka:
        return str(kafka[f"{what}.pem"])
    if f"{what}.location" not in kafka:
        return ""
    path = Path(str(kafka[f"{what}.location"]))
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"[kafka] {what}.location = {path}: it cannot be read as PEM: {error}") from None
