"""A tenant whose bridge speaks TLS, with an authority of its own."""

import msgspec

from fogline_cloud.authority.ca_folder import LIST
from fogline_cloud.authority.certificates import Role
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.line.line import Line


def secure(line: Line) -> tuple[Line, AuthorityFolder]:
    """Return the tenant with TLS at its bridge and its gateway `gw-1`."""
    site = AuthorityFolder(line.folder, line.tenant)
    bridge = msgspec.structs.replace(
        line.cloud.bridge, tls=site.files(Role.BRIDGE, "bridge-1"), crl=str(site.ca.path / LIST), users=str(site.users)
    )
    line.cloud = msgspec.structs.replace(line.cloud, bridge=bridge)
    line.uplink_tls = site.files(Role.GATEWAY, "gw-1")
    return line, site
