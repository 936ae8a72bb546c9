"""`fogline ledger verify --document` and `fogline ledger check-proof`: a signed document to hand over."""

import argparse
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509

from fogline.errors import Misconfigured, Poison
from fogline.process.console.listing import utc
from fogline.process.console.terminal import escaped, show
from fogline.process.files.durable_file import replace_file
from fogline_cloud.authority.revocation import RevocationList, read_revocation_list
from fogline_cloud.authority.signed_document import MAX_BYTES, DocumentSigner, SignedDocument, read_signed, read_signer, sign
from fogline_cloud.cli.common import add_command
from fogline_cloud.ledger.period_rows import period_rows
from fogline_cloud.ledger.proof_document import KIND, ProofDocument, decode_document, document_of, encode_document, lines_of
from fogline_cloud.ledger.verification import Verification
from fogline_cloud.settings import CloudSettings


def add_document(parser: argparse.ArgumentParser) -> None:
    """Add the options for a document."""
    parser.add_argument("--document", type=Path, help="write the result to this file too, signed")
    parser.add_argument("--sign-with", help="the certificate that signs (PEM; default: that of bridge.tls)")
    parser.add_argument("--sign-key", help="its private key (PEM; default: that of bridge.tls)")


def register_check(commands: Any, **more: Any) -> None:
    """Add `check-proof`."""
    check = add_command(commands, "check-proof", run_check_proof, "check and show a signed document", config=False, **more)
    check.add_argument("file", type=Path, help="the document")
    check.add_argument("--ca", type=Path, required=True, help="the certificate of the authority: ca.pem of `fogline ca`")
    check.add_argument("--crl", type=Path, help="the authority's list of revoked certificates: crl.pem of `fogline ca`")


def signer_of(arguments: argparse.Namespace, settings: CloudSettings) -> DocumentSigner | None:
    """Return who signs the document, None if there is to be none. Raises `Misconfigured`, before the tables are read."""
    if arguments.document is None:
        return None
    tls = settings.bridge.tls
    certificate = arguments.sign_with or (tls.certificate if tls is not None else None)
    key = arguments.sign_key or (tls.key if tls is not None else None)
    if certificate is None or key is None:
        raise Misconfigured("--document needs a certificate: set [bridge.tls], or give --sign-with and --sign-key")
    return read_signer(certificate, key)


def write_document(file: Path, settings: CloudSettings, found: Verification, signer: DocumentSigner, now: datetime) -> bool:
    """Write the signed document of a verification. Returns True if it says that the period is complete."""
    document = document_of(settings.tenant, found, period_rows(settings, found.period, found.device))
    try:
        replace_file(file, sign(encode_document(document), KIND, signer, now).encode() + b"\n", 0o644)
    except OSError as error:
        raise Misconfigured(f"--document {file}: {error.strerror}") from None
    return document.complete


def run_check_proof(arguments: argparse.Namespace) -> int:
    """Check the signature of a document and show it. Returns 1 if it says that the period is not complete."""
    try:
        signed = read_signed(_text(arguments.file), KIND, _authorities(arguments.ca), _revoked(arguments))
        document = _document(signed)
    except Poison as error:
        raise Misconfigured(f"{arguments.file}: {error}") from None
    if arguments.json:
        show(json.dumps({"signer": signed.signer, "signed": utc(signed.signed), "proof": msgspec.to_builtins(document)}))
    else:
        show(escaped(f"signed by {signed.signer} at {utc(signed.signed)}"))
        for line in lines_of(document):
            show(escaped(line))
    return 0 if document.complete else 1


def _document(signed: SignedDocument) -> ProofDocument:
    document = decode_document(signed.body)
    if document.tenant != signed.tenant:
        raise Poison("tenant", f"a service of tenant {signed.tenant} has signed it for tenant {document.tenant}")
    return document


def _text(file: Path) -> str:
    try:
        with file.open("rb") as source:
            return source.read(MAX_BYTES + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise Misconfigured(f"cannot read {file}: {error.strerror}") from None


def _authorities(file: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(file.read_bytes())
    except (OSError, ValueError) as error:
        raise Misconfigured(f"--ca {file}: {error}") from None


def _revoked(arguments: argparse.Namespace) -> RevocationList | None:
    return read_revocation_list(str(arguments.crl), str(arguments.ca)) if arguments.crl is not None else None
