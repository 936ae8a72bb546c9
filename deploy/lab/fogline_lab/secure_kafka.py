"""Kafka broker on loopback that takes no plain text, knows its users and checks ACLs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fogline_lab.kafka_broker import KafkaBroker, free_port

ADMIN: Final = "admin"
"""The super user, whom the broker itself is too."""
_SECURITY: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """The files and users of a broker. `passwords` (SCRAM-SHA-512) includes that of `ADMIN`.

    `ca`: the authority of the broker's certificate and of its TLS clients (PEM). `keystore`: its key and certificate (PEM).
    `jwks`: the public keys of `issuer`, who issues the tokens (JWKS). `audience`: the name of this broker in them.
    """

    passwords: Mapping[str, str]
    ca: Path
    keystore: Path
    jwks: Path
    issuer: str
    audience: str


class SecureKafkaBroker(KafkaBroker):
    """A broker with SASL over TLS (SCRAM-SHA-512, OAUTHBEARER) on its port, and TLS with client certificates on `tls_port`."""

    def __init__(self, data: Path, security: BrokerSecurity) -> None:
        self._security = security
        self._jwks = security.jwks.absolute().as_uri()
        users = [f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in security.passwords.items()]
        super().__init__(
            data,
            format_options=[word for user in users for word in ("--add-scram", user)],
            java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._jwks}"],
        )
        self.tls_port = free_port()
        self.tls_bootstrap = f"127.0.0.1:{self.tls_port}"

    def _settings(self) -> dict[str, str]:
        clients = f"SASL_SSL://127.0.0.1:{self.port},SSL://127.0.0.1:{self.tls_port}"
        scram, oauth = "listener.name.sasl_ssl.scram-sha-512", "listener.name.sasl_ssl.oauthbearer"
        login = f'username="{ADMIN}" password="{self._security.passwords[ADMIN]}"'
        return {
            **super()._settings(),
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            f"{scram}.sasl.jaas.config": f"{_SECURITY}.scram.ScramLoginModule required {login};",
            f"{oauth}.sasl.jaas.config": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
            f"{oauth}.sasl.server.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{oauth}.sasl.oauthbearer.jwks.endpoint.url": self._jwks,
            f"{oauth}.sasl.oauthbearer.expected.audience": self._security.audience,
            f"{oauth}.sasl.oauthbearer.expected.issuer": self._security.issuer,
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._security.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._security.ca),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",  # ANONYMOUS is the broker at its own controller
        }
