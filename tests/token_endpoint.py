"""An authority that gives tokens to clients (OAuth 2.0, RFC 6749 section 4.4), over TLS on loopback."""

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

VALID_S = 600
KEY_ID = "tokens"


class TokenEndpoint:
    """Gives a token for `audience` to each client that knows its secret. `url` is known at once; `start`, then `stop`."""

    def __init__(self, secrets: dict[str, str], audience: str, certificate: Path, key: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self._clients = {basic(*each): each[0] for each in secrets.items()}
        self._audience = audience
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                client = endpoint._clients.get(self.headers.get("Authorization", ""))
                body = {"error": "invalid_client"} if client is None else endpoint._answer(client)
                data = json.dumps(body).encode()
                self.send_response(401 if client is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def public_keys(self) -> str:
        """The keys that prove a token (JWKS, RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        n, e = (base64url(each.to_bytes((each.bit_length() + 7) // 8, "big")) for each in (numbers.n, numbers.e))
        return json.dumps({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, "n": n, "e": e}]})

    def _answer(self, client: str) -> dict[str, str | int]:
        now = int(time.time())
        claims = {"sub": client, "aud": self._audience, "iss": self.url, "scope": "kafka", "iat": now, "exp": now + VALID_S}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": KEY_ID}, claims)
        signed = ".".join(base64url(json.dumps(each).encode()) for each in parts)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return {"access_token": f"{signed}.{base64url(signature)}", "token_type": "Bearer", "expires_in": VALID_S}


def basic(client: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
