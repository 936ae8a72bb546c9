"""Password files as `mosquitto_passwd -H sha512-pbkdf2` writes them."""

import base64
import hashlib
from pathlib import Path


def mosquitto_line(name: str, password: bytes, iterations: int = 101) -> str:
    """Return the line of one user, without its end."""
    salt = b"0123456789ab"
    hashed = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
    return f"{name}:$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(hashed).decode()}"


def password_file(folder: Path, **passwords: str) -> str:
    """Write the file `users` in `folder`, with a password by each name. Returns its path."""
    path = folder / "users"
    path.write_text("\n".join(mosquitto_line(name, password.encode()) for name, password in passwords.items()))
    return str(path)
