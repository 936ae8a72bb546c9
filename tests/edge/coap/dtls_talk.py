"""A DTLS server and its clients without a network: a transcript, with a clock that the test moves."""

from typing import Any

from fogline.gateway.device_credentials import DeviceCredentials, PskKey
from fogline_edge.adapters.coap.dtls.dtls_counters import DtlsCounters
from fogline_edge.adapters.coap.dtls.effects import Effect, Refusal, SendDatagram, SessionContent, SessionEnded
from fogline_edge.adapters.coap.dtls.server import DtlsServer
from fogline_edge.adapters.coap.dtls.session import SessionEndpoint
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.listener_settings import CoapDtlsSettings
from fogline_lab.device.dtls_client import DtlsClient

KEY = b"0123456789abcdef"
HERE, THERE = ("192.0.2.1", 5001), ("192.0.2.2", 5002)
Address = tuple[str, int]


def key_of(device: str, key: bytes = KEY, number: int = 1) -> DeviceCredentials:
    return DeviceCredentials(device=device, version=number, keys=[PskKey(number=number, identity=device, key=key)])


class Talk:
    """A server that knows devices d1 to d9. `sent`, `received`, `ended` and `refused`: what it has done so far."""

    def __init__(self, **settings: Any) -> None:
        self.store = CredentialStore([key_of(f"d{number}") for number in range(1, 10)])
        self.counters = DtlsCounters()
        self.server = DtlsServer(CoapDtlsSettings(**settings), self.store, self.counters)
        self.now_s = 100.0
        self.sent: list[SendDatagram] = []
        self.received: list[SessionContent] = []
        self.ended: list[SessionEndpoint] = []
        self.refused: list[str] = []

    def give(self, datagram: bytes, address: Address = HERE) -> list[bytes]:
        """Give the server a datagram. Return what it sends."""
        return self.perform(self.server.receive(datagram, address, self.now_s))

    def perform(self, effects: list[Effect]) -> list[bytes]:
        sent = [each for each in effects if isinstance(each, SendDatagram)]
        self.sent += sent
        self.received += [each for each in effects if isinstance(each, SessionContent)]
        self.ended += [each.endpoint for each in effects if isinstance(each, SessionEnded)]
        self.refused += [each.reason for each in effects if isinstance(each, Refusal)]
        return [each.data for each in sent]

    def answer(self, data: bytes, endpoint: SessionEndpoint) -> list[bytes]:
        """Send content in a session. Return the datagrams."""
        sent = self.server.send(data, endpoint)
        return self.perform([sent] if sent is not None else [])

    def pass_time(self, seconds: float) -> list[bytes]:
        """Let time pass; the server acts whenever it is due. Return what it sends."""
        end_s, sent = self.now_s + seconds, list[bytes]()
        while self.server.due_s <= end_s:
            self.now_s = max(self.now_s, self.server.due_s)
            sent += self.perform(list(self.server.on_time(self.now_s)))
        self.now_s = end_s
        return sent

    def run(self, client: DtlsClient, address: Address = HERE) -> None:
        """Carry datagrams to and fro until neither side has any."""
        waiting = [client.hello()]
        while waiting:
            answers = self.give(waiting.pop(0), address)
            waiting += [next_one for each in answers if (next_one := client.receive(each))]

    def connect(self, device: str = "d1", address: Address = HERE, **offered: Any) -> DtlsClient:
        client = DtlsClient(device, KEY, **offered)
        self.run(client, address)
        assert client.is_open, self.refused
        return client

    def says(self, client: DtlsClient, data: bytes, address: Address = HERE) -> SessionEndpoint:
        """Let a client send content. Return the endpoint at which it arrived."""
        self.give(client.seal(data), address)
        assert self.received[-1].data == data
        return self.received[-1].endpoint
