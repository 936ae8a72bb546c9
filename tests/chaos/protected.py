"""A bridge process with TLS, certificates and passwords."""

from fogline_cloud.authority.ca_folder import LIST
from fogline_cloud.authority.certificates import Role
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import ChildProcess


def protected(site: ProcessLine, authority: AuthorityFolder, name: str = "b-1") -> ChildProcess:
    """The bridge process of this name with TLS, certificates and passwords."""
    bridge = site.bridge(name)
    tls = authority.files(Role.BRIDGE, name)
    with (site.folder / f"{name}.toml").open("a") as file:
        file.write(f'crl = "{authority.ca.path / LIST}"\nusers = "{authority.users}"\n')
        file.write(f'[bridge.tls]\nca = "{tls.ca}"\ncertificate = "{tls.certificate}"\nkey = "{tls.key}"\n')
    return bridge
