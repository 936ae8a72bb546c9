"""A tenant whose gateways reach its bridges by way of a router or a broker."""

from msgspec.structs import replace

from fogline.process.files.via_settings import ViaKind, ViaSettings
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.line.line import Line
from fogline_lab.line.secure_line import secure


def behind(line: Line, port: int, kind: ViaKind = ViaKind.ROUTER) -> tuple[Line, AuthorityFolder]:
    """Return the tenant with TLS, and with a router or broker at a port of loopback between gateways and bridges."""
    line, site = secure(line)
    line.uplink_via = ViaSettings(url=f"amqp://127.0.0.1:{port}", kind=kind)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, via=[line.uplink_via]))
    return line, site
