"""The TLS context of a listener, made again when its files change."""

import ssl
from collections.abc import Sequence
from functools import partial

from fogline.process.files.tls_files import ReadAgain, server_context
from fogline_edge.listener_settings import ListenerTlsSettings


def listener_context(
    tls: ListenerTlsSettings, where: str, *, passwords: bool, protocols: Sequence[str] = ()
) -> ReadAgain[ssl.SSLContext]:
    """Return the context for new connections. `passwords`: a device may log in by one instead of a certificate.

    `protocols`: those that the listener speaks (ALPN, RFC 7301). Raises `Misconfigured`, which names `where`.
    """
    paths = [each for each in (tls.certificate, tls.key, tls.ca, tls.crl) if each is not None]
    read = partial(_read, tls, where, passwords=passwords, protocols=protocols)
    return ReadAgain(read, paths, signed=[tls.crl] if tls.crl is not None else [])


def _read(tls: ListenerTlsSettings, where: str, *, passwords: bool, protocols: Sequence[str]) -> ssl.SSLContext:
    context = server_context(tls, where, passwords=passwords, crl=tls.crl)
    if protocols:
        context.set_alpn_protocols(protocols)
    return context
