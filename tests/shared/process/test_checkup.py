"""What `doctor` says of a bridge that cannot be reached as the settings have it."""

import socket
import ssl
import threading

from fogline.process.checkup import Grade, check_bridge


def test_a_port_without_tls_is_not_taken_for_a_firewall():
    """Of OpenSSL's `[SSL: WRONG_VERSION_NUMBER]`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"AMQP\x00\x01\x00\x00")

        answering = threading.Thread(target=answer)
        answering.start()
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        *_, found = check_bridge(endpoint, "operator.bridge", ssl.create_default_context())
        answering.join()
    assert (found.grade, found.text) == (Grade.FAIL, f"{endpoint}: the peer does not speak TLS")
    assert found.remedy == "Check that operator.bridge is the bridge's port for TLS"
