"""A device or program at an MQTT broker that answers each message with others, as a test says."""

from collections.abc import Callable, Iterable

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

LIMIT_S = 60.0
Answers = Callable[[str, bytes], Iterable[tuple[str, bytes]]]


class BrokerProgram:
    """Subscribes to `topic` at the broker of `port`, and publishes at QoS 0 what `answers` returns for each message.

    `will`: topic and payload of the message that the broker publishes, retained, when the program is lost.
    """

    def __init__(self, port: int, topic: str, answers: Answers, will: tuple[str, bytes] | None = None) -> None:
        self._answers = answers
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe(topic, 1)
        self._client.on_message = self._on_message
        if will is not None:
            self._client.will_set(*will, qos=1, retain=True)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def close(self) -> None:
        """Disconnect, as in order."""
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish a message, and wait until it has left."""
        self._client.publish(topic, payload, 1, retain=retain).wait_for_publish(LIMIT_S)

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        for topic, payload in self._answers(message.topic, bytes(message.payload)):
            self._client.publish(topic, payload)
