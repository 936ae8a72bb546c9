"""Steps of an enrolment."""

import asyncio
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from fogline.gateway.enrolment import EnrolmentToken, decode_token
from fogline_cloud.authority.ca_folder import CaFolder
from fogline_cloud.authority.certificates import now_utc
from fogline_edge.operate.enrolment import enroll
from fogline_edge.operate.first_settings import CERTIFICATE
from fogline_lab.credentials.authority_folder import HERE, AuthorityFolder
from fogline_lab.line.line import Line


def token_of(site: AuthorityFolder, gateway: str = "gw-9", *, ca: CaFolder | None = None, age_min: float = 0) -> EnrolmentToken:
    root = (ca or site.ca).authority.certificate.public_bytes(Encoding.DER)
    made = site.ca.tokens.make(site.tenant, gateway, root, now_utc() - timedelta(minutes=age_min), 15)
    return decode_token(made.encode())


async def enrolled(line: Line, token: EnrolmentToken, folder: Path) -> Path:
    return await asyncio.to_thread(enroll, token, f"{HERE}:{line.port}", folder)


def serial(folder: Path) -> int:
    return x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes()).serial_number
