"""The reason why an adapter cannot listen, and the setting to change. Pure."""

import errno
import os


def cannot_listen(error: OSError, name: str, host: str, port: int) -> str:
    """Return one line for the log. `name`: the adapter's table in the settings."""
    where = f"{name}: cannot listen on {host}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{where}: another program listens there; stop it, or set another {name}.port"
        case errno.EACCES:
            return f"{where}: this user may not use the port; set {name}.port to one above 1023"
        case errno.EADDRNOTAVAIL:
            return f"{where}: this machine has no such address; set {name}.host"
    return f"{where}: {os.strerror(error.errno) if error.errno and error.errno > 0 else error}"
