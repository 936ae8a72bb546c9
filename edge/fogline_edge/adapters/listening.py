"""Why an adapter cannot listen, in words that say what to change. Pure."""

import errno
import os


def cannot_listen(error: OSError, name: str, host: str, port: int) -> str:
    """One line for a person. `name`: the table of the settings that the adapter reads."""
    where = f"{name}: cannot listen on {host}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{where}: another program listens there; end it, or set another {name}.port"
        case errno.EACCES:
            return f"{where}: this user may not; set {name}.port to one over 1023"
        case errno.EADDRNOTAVAIL:
            return f"{where}: this machine has no such address; set {name}.host"
    return f"{where}: {os.strerror(error.errno) if error.errno and error.errno > 0 else error}"
