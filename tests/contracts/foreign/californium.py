"""Eclipse Californium, the CoAP client of Eclipse Hono and Leshan, with DTLS and connection ids."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError

CLIENT_LIMIT_MS = 60_000


class Californium:
    """One client with a pre-shared key. Its calls block."""

    def __init__(self, jvm: Any, endpoint: Any, connector: Any, address: tuple[str, int]) -> None:
        self._jvm, self._endpoint, self._connector, self._address = jvm, endpoint, connector, address

    def put(self, path: str, payload: str, content_format: int = 50) -> str:
        """Send an event. Return the code of the response, or what went wrong."""
        client = self._jvm.org.eclipse.californium.core.CoapClient("coaps://{}:{}/{}".format(*self._address, path))
        client.setEndpoint(self._endpoint)
        client.setTimeout(self._jvm.java.lang.Long(CLIENT_LIMIT_MS))
        try:
            return str(client.put(payload, content_format).getCode().toString())
        except Py4JJavaError as error:
            return str(error.java_exception.getMessage())

    @property
    def suite(self) -> str:
        """The cipher suite of its session."""
        address = self._jvm.java.net.InetSocketAddress(*self._address)
        return str(self._connector.getSessionByAddress(address).getCipherSuite().toString())


@contextmanager
def californium(
    jvm: Any, address: tuple[str, int], identity: str, key: bytes, *, cid_bytes: int | None, suites: tuple[str, ...] = ()
) -> Iterator[Californium]:
    """Start a client. `cid_bytes`: length of the connection id for records to it; None: it knows none."""
    root = jvm.org.eclipse.californium
    dtls = root.scandium.config.DtlsConfig
    for each in (root.core.config.CoapConfig, dtls, root.elements.config.UdpConfig):
        each.register()
    config = root.elements.config.Configuration.createStandardWithoutFile()
    config.set(dtls.DTLS_CONNECTION_ID_LENGTH, cid_bytes)
    config.set(dtls.DTLS_ROLE, dtls.DtlsRole.CLIENT_ONLY)
    if suites:
        offered = jvm.java.util.ArrayList()
        for each in suites:
            offered.add(root.scandium.dtls.cipher.CipherSuite.getTypeByName(each))
        config.set(dtls.DTLS_CIPHER_SUITES, offered)
    builder = root.scandium.config.DtlsConnectorConfig.builder(config)
    builder.setAdvancedPskStore(root.scandium.dtls.pskstore.AdvancedSinglePskStore(identity, key))
    connector = root.scandium.DTLSConnector(builder.build())
    endpoint = root.core.network.CoapEndpoint.builder().setConfiguration(config).setConnector(connector).build()
    try:
        yield Californium(jvm, endpoint, connector, address)
    finally:
        endpoint.destroy()
