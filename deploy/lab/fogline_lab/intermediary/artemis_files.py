"""The settings files of an Artemis broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fogline.process.files.tls_files import TlsSettings

_ROLE = "line"
_PERMISSIONS = ("createAddress", "createDurableQueue", "createNonDurableQueue", "consume", "browse", "send")
_ADDRESSES = """\
    <!-- An address is a queue, also for a client that does not ask for one (capability `queue`). -->
    <default-address-routing-type>ANYCAST</default-address-routing-type>
    <default-queue-routing-type>ANYCAST</default-queue-routing-type>
    <!-- A queue outlives its consumers: a bridge that is away finds its messages. -->
    <auto-delete-queues>false</auto-delete-queues>
    <auto-delete-addresses>false</auto-delete-addresses>
    <!-- Without this, a message that was released or modified ten times is deleted. -->
    <max-delivery-attempts>-1</max-delivery-attempts>
"""
"""What Fogline needs of a broker's addresses."""


@dataclass(frozen=True)
class BrokerFiles:
    """Files of a broker in `folder`. `as_shipped`: without the settings that Fogline needs for its addresses.

    A message of an address that no consumer has a queue for is lost then, as are those that were released ten times.
    """

    folder: Path
    port: int
    users: Mapping[str, str]
    tls: TlsSettings | None
    as_shipped: bool = False

    def write(self) -> None:
        """Write all files."""
        place = self.folder / "etc"
        place.mkdir(exist_ok=True)
        names = ",".join([*self.users, *(["certified"] if self.tls else [])])
        files = {
            "broker.xml": self._broker(),
            "bootstrap.xml": self._bootstrap(),
            "management.xml": '<management-context xmlns="http://activemq.apache.org/schema"/>\n',
            "login.config": _LOGIN,
            "users.properties": "".join(f"{user}={password}\n" for user, password in self.users.items()),
            "certificates.properties": "certified=/CN=.*/\n",
            "roles.properties": f"{_ROLE}={names}\n",
        }
        if self.tls is not None:
            files["keys.pemcfg"] = f"source.key={self.tls.key}\nsource.cert={self.tls.certificate}\n"
        for name, text in files.items():
            (place / name).write_text(text)

    def _bootstrap(self) -> str:
        broker = (self.folder / "etc" / "broker.xml").as_uri()
        return (
            '<broker xmlns="http://activemq.apache.org/schema">\n'
            f'  <jaas-security domain="activemq"/>\n  <server configuration="{broker}"/>\n</broker>\n'
        )

    def _broker(self) -> str:
        secure = "true" if self.users or self.tls else "false"
        folders = ("paging", "bindings", "journal", "large-messages")
        places = "".join(f"  <{each}-directory>data/{each}</{each}-directory>\n" for each in folders)
        permissions = "".join(f'<permission type="{each}" roles="{_ROLE}"/>' for each in _PERMISSIONS)
        return f"""\
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>artemis</name>
  <persistence-enabled>true</persistence-enabled>
  <journal-type>NIO</journal-type>
{places}\
  <journal-file-size>1M</journal-file-size>
  <journal-buffer-timeout>1000000</journal-buffer-timeout>
  <global-max-size>64M</global-max-size>
  <max-disk-usage>100</max-disk-usage>
  <security-enabled>{secure}</security-enabled>
  <acceptors><acceptor name="amqp">{self._acceptor()}</acceptor></acceptors>
  <security-settings><security-setting match="#">{permissions}</security-setting></security-settings>
  <address-settings><address-setting match="#">
{"" if self.as_shipped else _ADDRESSES}\
  </address-setting></address-settings>
</core></configuration>
"""

    def _acceptor(self) -> str:
        mechanisms = [*(["EXTERNAL"] if self.tls else []), *(["PLAIN"] if self.users else [])] or ["ANONYMOUS"]
        options = {"protocols": "AMQP", "saslMechanisms": ",".join(mechanisms)}
        if self.tls is not None:
            options |= {
                "sslEnabled": "true",
                "needClientAuth": "false" if self.users else "true",
                "wantClientAuth": "true",
                "keyStoreType": "PEMCFG",
                "keyStorePath": str(self.folder / "etc" / "keys.pemcfg"),
                "trustStoreType": "PEM",
                "trustStorePath": self.tls.ca,
            }
        return f"tcp://127.0.0.1:{self.port}?{';'.join(f'{key}={value}' for key, value in options.items())}"


_JAAS = "org.apache.activemq.artemis.spi.core.security.jaas"
_LOGIN = f"""\
activemq {{
  {_JAAS}.TextFileCertificateLoginModule sufficient
    org.apache.activemq.jaas.textfiledn.user="certificates.properties"
    org.apache.activemq.jaas.textfiledn.role="roles.properties";
  {_JAAS}.PropertiesLoginModule sufficient
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
}};
"""
