"""Errors at the object store as one sentence, by the reaction that they need.

The clients (delta-rs and obstore, both on the crate `object_store`, and Hadoop's S3A) name causes in their texts only.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fogline.errors import FoglineError, Misconfigured, Unreachable

_OF_STORE = re.compile(
    r"Generic S3 error|Error performing [A-Z]+ https?://|fs\.s3a\b|\bon s3a://|software\.amazon\.awssdk|\bs3a://\S+: Bucket"
    r"|fogline\.PutIfAbsentLogStore"
)
_ADDRESS = re.compile(r"Error performing [A-Z]+ (https?://[^/\s]+)")
_KEYS = "[store] key_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
_KNOWN = (  # Pattern and meaning. The first match counts.
    (
        r"ClassNotFoundException|NoClassDefFoundError|No FileSystem for scheme",
        "Spark lacks the jars for an object store: run deploy/setup/setup.sh s3, or install the package fogline-flow-s3",
    ),
    (
        r"169\.254\.169\.254|169\.254\.170\.2|CredentialsNotLoaded|NoAuthWithAWS|NoAwsCredentials|Unable to load credentials",
        f"there are no keys to the object store: set {_KEYS}",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|AuthorizationHeaderMalformed",
        f"the object store refuses the keys: check {_KEYS}, and [store] region",
    ),
    (
        r"NoSuchBucket|UnknownStoreException|Bucket does not exist",
        "the bucket does not exist in the object store: create it, or correct the URL or [store] endpoint",
    ),
    (r"PermanentRedirect|[Ss]tatus [Cc]ode: 301", "the bucket is in another region: set [store] region"),
    (
        r"[Ss]tatus [Cc]ode: 403|AccessDenied",
        "the object store denies access: the keys need rights to list the bucket, and to read, write and delete its objects",
    ),
    (
        r"invalid peer certificate|UnknownIssuer|PKIX path building failed",
        "the certificate of the object store is not trusted on this machine: install the certificate of its authority",
    ),
    (
        r"[Ss]tatus [Cc]ode: 501|NotImplemented",
        "the object store does not know a request that Fogline needs: docs/store.md names stores that do",
    ),
)
_AWAY = re.compile(
    r"error sending request|[Tt]imed? ?out|TimeoutException|[Ss]tatus [Cc]ode: (5\d\d|429)|Connection (refused|reset)"
    r"|connection closed|(error decoding|request or) response body|reading a body from connection|Premature end of|Broken pipe"
    r"|ConditionalRequestConflict|<Code>InternalError|Unable to execute HTTP request|SlowDown|ServiceUnavailable"
    r"|(UnknownHost|NoRouteToHost|Connect|NoHttpResponse|AWSStatus500|AWSServiceThrottled|AWSNoResponse)Exception"
)


def meaning_of(text: str) -> FoglineError | None:
    """Return an error at the store from the text of any client: `Unreachable` or `Misconfigured`, None for another error."""
    if not _OF_STORE.search(text):
        return None
    for pattern, meaning in _KNOWN:
        if re.search(pattern, text):
            return Misconfigured(meaning)
    if _AWAY.search(text):
        address = _ADDRESS.search(text)
        return Unreachable(f"the object store{f' at {address[1]}' if address else ''} does not answer")
    return None


def failure_of(error: Exception, where: str) -> FoglineError:
    """Return an error of delta-rs or Arrow as one line: `Unreachable` if the store is away, else `Misconfigured`.

    `where`: the beginning of the line, such as "table s3a://site/tables/events cannot be read".
    """
    found = meaning_of(str(error))
    return type(found)(f"{where}: {found}") if found is not None else Misconfigured(f"{where}: {first_line(error)}")


@contextmanager
def named() -> Iterator[None]:
    """Raise errors at the store within the block as `meaning_of` names them. Other errors pass."""
    try:
        yield
    except Exception as error:  # the text tells, because each client has classes of its own
        found = None if isinstance(error, FoglineError) else meaning_of(str(error))
        if found is None:
            raise
        raise found from None


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, without a terminal's colours."""
    return re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m", "", str(error)).partition("\n")[0])
