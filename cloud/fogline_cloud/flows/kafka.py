"""Translates Kafka settings from librdkafka's names (`[kafka]` in the settings) to those of Spark's Java client."""

import logging
from collections.abc import Mapping
from pathlib import Path

from fogline.errors import Misconfigured
from fogline_cloud.settings import Scalar

log = logging.getLogger(__name__)

_SAME = {
    *("bootstrap.servers", "client.id", "client.dns.lookup", "client.rack", "connections.max.idle.ms", "metadata.max.age.ms"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
    *("sasl.kerberos.service.name", "sasl.mechanism", "security.protocol"),
    *("ssl.cipher.suites", "ssl.endpoint.identification.algorithm", "ssl.key.password"),
}
_RENAMED = {"metadata.broker.list": "bootstrap.servers", "sasl.mechanisms": "sasl.mechanism"}
_PEM = ("ssl.ca", "ssl.certificate", "ssl.key")
_COMBINED = {"sasl.username", "sasl.password", *(f"{what}.{kind}" for what in _PEM for kind in ("location", "pem"))}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def spark_options(kafka: Mapping[str, Scalar]) -> dict[str, str]:
    """Return options `kafka.*` of Spark's source and sink. Raises `Misconfigured` for unusable SASL mechanisms or PEM files."""
    java: dict[str, str] = {}
    for key, value in kafka.items():
        if key in _SAME or key in _RENAMED:
            java[_RENAMED.get(key, key)] = str(value).lower() if isinstance(value, bool) else str(value)
        elif key not in _COMBINED:
            log.info("[kafka] %s has no counterpart in Spark's Kafka client: the flow ignores it", key)
    java |= {**_sasl(kafka), **_tls(kafka)}
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    return {f"kafka.{key}": value for key, value in java.items()}


def _sasl(kafka: Mapping[str, Scalar]) -> dict[str, str]:
    if "sasl.username" not in kafka:
        return {}
    mechanism = str(kafka.get("sasl.mechanisms", kafka.get("sasl.mechanism", "PLAIN")))
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise Misconfigured(f"[kafka] sasl.mechanism = {mechanism}: the flow supports {', '.join(_LOGIN_MODULES)}")
    user, password = (_quoted(str(kafka.get(f"sasl.{what}", ""))) for what in ("username", "password"))
    return {"sasl.jaas.config": f"{module} required username={user} password={password};"}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _tls(kafka: Mapping[str, Scalar]) -> dict[str, str]:
    java: dict[str, str] = {}
    authority, certificate, key = (_pem(kafka, what) for what in _PEM)
    if authority:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    if certificate and key:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
    return java


def _pem(kafka: Mapping[str, Scalar], what: str) -> str:
    """Return PEM text from the settings or from a file. Java takes a private key in PKCS #8 only."""
    if f"{what}.pem" in kafka:
        return str(kafka[f"{what}.pem"])
    if f"{what}.location" not in kafka:
        return ""
    path = Path(str(kafka[f"{what}.location"]))
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"[kafka] {what}.location = {path}: it cannot be read as PEM: {error}") from None
