"""The keys to an object store, in AWS's form of a file with shared credentials.

[default]
aws_access_key_id = AKIA...
aws_secret_access_key = ...
aws_session_token = ...        (only of temporary credentials)
"""

from configparser import ConfigParser
from configparser import Error as ConfigError

import msgspec

from fogline.errors import Misconfigured
from fogline.process.files.tls_files import check_private
from fogline.process.files.user_file import read_text

_WHERE = "[store] key_file"
_PROFILE = "default"
_NAMES = {"aws_access_key_id": "key_id", "aws_secret_access_key": "secret", "aws_session_token": "session_token"}


class StoreKeys(msgspec.Struct, frozen=True):
    """Credentials of one user of the store. `session_token`: empty, but for temporary ones."""

    key_id: str
    secret: str
    session_token: str = ""

    def __repr__(self) -> str:
        """Return the key's id, without the secret."""
        return f"StoreKeys({self.key_id!r})"


def read_keys(path: str) -> StoreKeys:
    """Read the profile `default` of a file. Raises `Misconfigured`, also if everybody may read the file."""
    check_private(path, _WHERE)
    file = ConfigParser(interpolation=None)
    try:
        file.read_string(read_text(path, _WHERE))
    except ConfigError:  # its text has the line, which may hold the secret
        raise Misconfigured(f"{_WHERE} = {path}: the file is not of AWS's form. {_form()}") from None
    found = {
        _NAMES[name]: value for name, value in (file[_PROFILE] if file.has_section(_PROFILE) else {}).items() if name in _NAMES
    }
    for name in ("aws_access_key_id", "aws_secret_access_key"):
        if not found.get(_NAMES[name]):
            raise Misconfigured(f"{_WHERE} = {path}: {name} is missing. {_form()}")
    return StoreKeys(**found)


def _form() -> str:
    return "Expected the lines [default], aws_access_key_id = ..., aws_secret_access_key = ..."
