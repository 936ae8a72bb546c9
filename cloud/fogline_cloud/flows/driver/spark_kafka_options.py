"""Translates Kafka settings from librdkafka's names (`[kafka]` in the settings) to those of Spark's Java client.

A setting that protects the connection is translated, or refused if the Java client has no counterpart. Any other setting only
tunes librdkafka, and is ignored.
"""

import logging
from collections.abc import Mapping

from fogline.errors import Misconfigured
from fogline_cloud.kafka.connection_settings import SYSTEM_AUTHORITIES, mechanism_of, with_content
from fogline_cloud.settings import Scalar

log = logging.getLogger(__name__)

_SAME = {
    *("bootstrap.servers", "client.id", "client.dns.lookup", "client.rack", "connections.max.idle.ms", "metadata.max.age.ms"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms", "ssl.key.password"),
    *("sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url"),
}
_RENAMED = {"metadata.broker.list": "bootstrap.servers"}
_PROTECT = ("enable.sasl.", "enable.ssl.", "https.", "sasl.", "security.", "ssl.")
_PKCS8 = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")
_SECURITY = "org.apache.kafka.common.security"
_LOGIN_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}
_TOKENS = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
_CLIENT_ID = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
_CLIENT_SECRET = ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")


def spark_options(kafka: Mapping[str, Scalar]) -> dict[str, str]:
    """Return the options `kafka.*` of Spark's source, with the content of the files that `[kafka]` names.

    Raises `Misconfigured` for a file that cannot be read, and for a setting that the Java client cannot follow.
    """
    return {f"kafka.{key}": value for key, value in java_settings(with_content(kafka)).items()}


def java_settings(kafka: Mapping[str, Scalar]) -> dict[str, str]:
    """Translate librdkafka's settings, which hold PEM texts instead of the names of their files. Pure, but for a log line."""
    told = {key: value for key, value in kafka.items() if value != SYSTEM_AUTHORITIES}  # the Java client's default
    left = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in told.items()}
    java = {**_transport(left), **_login(left), **_stores(left)}
    for key, value in left.items():
        if key in _SAME or key in _RENAMED:
            java[_RENAMED.get(key, key)] = value
        elif key.startswith(_PROTECT):
            raise Misconfigured(
                f"[kafka] {key} has no counterpart in Spark's Kafka client; run the flow with a settings file without it"
            )
        else:
            log.info("[kafka] %s has no counterpart in Spark's Kafka client: the flow ignores it", key)
    return java


def _transport(left: dict[str, str]) -> dict[str, str]:
    """Take the settings of the transport out of `left`, and return the Java client's."""
    java = {}
    if protocol := left.pop("security.protocol", ""):
        java["security.protocol"] = protocol.upper()
    if check := left.pop("ssl.endpoint.identification.algorithm", ""):
        java["ssl.endpoint.identification.algorithm"] = "" if check.lower() == "none" else check
    if left.get("enable.ssl.certificate.verification") == "true":
        del left["enable.ssl.certificate.verification"]
    return java


def _login(left: dict[str, str]) -> dict[str, str]:
    """Take the settings of SASL out of `left`, and return the Java client's."""
    mechanism = mechanism_of(left)
    if not mechanism:
        return {}
    left.pop("sasl.mechanism", None)
    left.pop("sasl.mechanisms", None)
    if mechanism not in _LOGIN_MODULES:
        raise Misconfigured(f"[kafka] sasl.mechanism = {mechanism}: the flow supports {', '.join(_LOGIN_MODULES)}")
    if mechanism == "OAUTHBEARER":
        options, java = _token_options(left), {"sasl.login.callback.handler.class": _TOKENS}
    else:
        options, java = {what: left.pop(f"sasl.{what}", "") for what in ("username", "password")}, {}
    quoted = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return {**java, "sasl.mechanism": mechanism, "sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required {quoted};"}


def _token_options(left: dict[str, str]) -> dict[str, str]:
    """Take the settings of the token's endpoint out of `left`, and return the options of the Java client's login module."""
    if left.get("sasl.oauthbearer.method", "").lower() == "oidc":
        del left["sasl.oauthbearer.method"]
    if left.get("sasl.oauthbearer.grant.type") == "client_credentials":
        del left["sasl.oauthbearer.grant.type"]
    options = {"password": ""}  # Spark's debug log hides what follows this word; the module does not know it
    for option, keys in (("clientId", _CLIENT_ID), ("clientSecret", _CLIENT_SECRET), ("scope", ("sasl.oauthbearer.scope",))):
        for key in keys:
            if key in left:
                options[option] = left.pop(key)
    for each in filter(None, left.pop("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = each.partition("=")
        options[f"extension_{name.strip()}"] = value
    if authority := left.pop("https.ca.pem", ""):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    return options


def _quoted(text: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\r", "\\r"), ("\n", "\\n")):
        text = text.replace(plain, escaped)
    return f'"{text}"'


def _stores(left: dict[str, str]) -> dict[str, str]:
    """Take certificates and key out of `left`, and return the Java client's."""
    java: dict[str, str] = {}
    if authority := left.pop("ssl.ca.pem", ""):
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    if "ssl.certificate.pem" in left and "ssl.key.pem" in left:
        certificate, key = left.pop("ssl.certificate.pem"), left.pop("ssl.key.pem")
        if not any(begin in key for begin in _PKCS8):
            raise Misconfigured(
                "[kafka] ssl.key: Spark's Kafka client takes a private key in PKCS #8 only; convert it: openssl pkcs8 -topk8"
            )
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
    return java
