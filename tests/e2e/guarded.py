"""A tenant whose HTTP API asks for logins."""

import ssl

from msgspec.structs import replace

from fogline.process.files.durable_file import write_new
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.api_settings import ApiTlsSettings
from fogline_cloud.authority.ca_folder import ROOT
from fogline_cloud.authority.certificates import Role
from fogline_cloud.bridge.door.passwords import password_line
from fogline_cloud.settings import OperatorSettings
from fogline_lab.credentials.authority_folder import PASSWORD
from fogline_lab.line.secure_line import secure

ACCESS = """
[[operator]]
name = "alice"
devices = ["lamp-*"]
commands = ["switch"]

[[service]]
name = "weather"
devices = ["station-*"]

[[quota]]
kind = "client"
name = "weather"
events_s = 2

[[quota]]
kind = "client"
name = "alice"
commands_min = 2
"""


def guarded(line):
    """The tenant with TLS, two users and `access.toml`; and the API's settings for it."""
    line, site = secure(line)
    site.users.unlink()
    write_new(site.users, "\n".join(password_line(name, PASSWORD) for name in ("alice", "weather")).encode())
    access = line.folder / "access.toml"
    access.write_text(ACCESS)
    line.cloud = replace(
        line.cloud,
        bridge=replace(line.cloud.bridge, access=str(access)),
        operator=OperatorSettings(tls=TlsSettings(ca=str(site.ca.path / ROOT))),
    )
    files = site.files(Role.BRIDGE, "api")
    tls = ApiTlsSettings(certificate=files.certificate, key=files.key)
    return line, {"tls": tls, "verify": ssl.create_default_context(cafile=str(site.ca.path / ROOT))}
