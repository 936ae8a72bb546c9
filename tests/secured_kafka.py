"""A real Kafka broker with TLS, users, tokens and ACLs, and settings files of its users."""

import json
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from fogline.process.files.durable_file import write_new
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem
from fogline_lab.secure_kafka import ADMIN, BrokerSecurity, SecureKafkaBroker
from token_endpoint import TokenEndpoint

USERS = (ADMIN, "bridge", "flow", "operator", "stranger")
AUDIENCE = "fogline-kafka"


class SecuredKafka:
    """The broker, and how its users log in. A context manager. `secrets`: the password, or the client's secret, of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = CaFolder.make(folder / "ca", "kafka", now_utc(), 1)
        self.root = self.ca.path / ROOT
        self.secrets = {user: f"canary-{secrets.token_hex(8)}" for user in USERS}
        certificate, key = self.certificate(folder, Role.BRIDGE, "broker")
        self.tokens = TokenEndpoint(self.secrets, AUDIENCE, certificate, key)
        (folder / "jwks.json").write_text(self.tokens.public_keys())
        (folder / "keystore.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
        security = BrokerSecurity(
            passwords=self.secrets,
            ca=self.root,
            keystore=folder / "keystore.pem",
            jwks=folder / "jwks.json",
            issuer=self.tokens.url,
            audience=AUDIENCE,
        )
        self.broker = SecureKafkaBroker(folder / "broker", security)

    def __enter__(self) -> Self:
        self.tokens.start()
        self.broker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.broker.stop()
        self.tokens.stop()

    def certificate(self, folder: Path, role: Role, name: str) -> tuple[Path, Path]:
        """Issue a certificate, and return its file and that of its key."""
        key, hosts = make_key(), ["127.0.0.1"] if role is Role.BRIDGE else []
        made = self.ca.issue(Subject("kafka", role, name, hosts), key.public_key(), now_utc(), 1)
        files = folder / f"{name}.pem", folder / f"{name}.key"
        files[0].write_bytes(pem(made))
        write_new(files[1], key_pem(key))
        return files

    def password(self, user: str) -> dict[str, str]:
        """`[kafka]` of a user with a password. Files are relative to the settings file."""
        return {
            "bootstrap.servers": self.broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password_file": "kafka.password",
            "ssl.ca.location": "kafka-ca.pem",
        }

    def token(self, user: str) -> dict[str, str]:
        """`[kafka]` of a user that gets tokens."""
        return {
            "bootstrap.servers": self.broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret_file": "kafka.password",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            "https.ca.location": "kafka-ca.pem",
            "ssl.ca.location": "kafka-ca.pem",
        }

    def client_certificate(self, user: str) -> dict[str, str]:
        """`[kafka]` of a user with a certificate. The principal is its whole subject."""
        return {
            "bootstrap.servers": self.broker.tls_bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": "kafka-ca.pem",
            "ssl.certificate.location": f"{user}.pem",
            "ssl.key.location": f"{user}.key",
        }

    def settings_file(self, folder: Path, user: str, tenant: str, kafka: dict[str, str], more: str = "") -> Path:
        """Write the settings of a user beside its files. Returns the path. `more`: further tables."""
        place = folder / user
        if not place.exists():
            place.mkdir(parents=True)
            write_new(place / "kafka.password", f"{self.secrets[user]}\n".encode())
            shutil.copy(self.root, place / "kafka-ca.pem")
            self.certificate(place, Role.OPERATOR, user)
        lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in kafka.items()]
        path = place / "cloud.toml"
        path.write_text("\n".join([f'tenant = "{tenant}"', "shards = 2", "[kafka]", *lines, more, ""]))
        return path
