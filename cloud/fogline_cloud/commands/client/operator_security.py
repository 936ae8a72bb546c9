"""How an operator proves its name to the bridge, from the settings."""

from fogline.amqp.login import EXTERNAL, PLAIN, Login
from fogline.amqp.security import ClientSecurity
from fogline.errors import Misconfigured
from fogline.process.files.settings_file import require_loopback
from fogline.process.files.tls_files import TlsSettings, check_private, client_context
from fogline.process.files.user_file import read_password
from fogline_cloud.settings import OperatorSettings


def password_security(settings: OperatorSettings, host: str) -> ClientSecurity:
    """Return TLS for users who log in with their passwords, or none for a bridge on loopback. Raises `Misconfigured`."""
    if settings.tls is None:
        require_loopback(host, "operator.bridge")
        return ClientSecurity()
    return ClientSecurity(tls=client_context(TlsSettings(ca=settings.tls.ca), "operator.tls"))


def operator_security(settings: OperatorSettings, host: str) -> ClientSecurity:
    """Return certificate or password of the operator. `host`: the bridge's. Raises `Misconfigured`."""
    if settings.tls is None:
        require_loopback(host, "operator.bridge")
        return ClientSecurity()
    context = client_context(settings.tls, "operator.tls")
    if settings.user is None and settings.password_file is not None:
        raise Misconfigured("operator.password_file has no effect: it needs operator.user")
    if settings.user is None:
        if settings.tls.certificate is None:
            raise Misconfigured("[operator.tls] needs `certificate` and `key`, or [operator] needs `user` and `password_file`")
        return ClientSecurity(Login(EXTERNAL), context)
    if settings.password_file is None:
        raise Misconfigured("operator.user needs operator.password_file")
    check_private(settings.password_file, "operator.password_file")
    password = read_password(settings.password_file, "operator.password_file")
    return ClientSecurity(Login(PLAIN, settings.user, password), context)
