"""Reads text files that users write. An editor of Windows may begin one with a byte order mark."""

from pathlib import Path

from fogline.errors import Misconfigured


def read_text(path: Path | str, what: str, missing: str = "") -> str:
    """Return the text of a UTF-8 file, without a byte order mark.

    Raises `Misconfigured`, which begins with `what`. `missing`: a sentence that helps if there is no such file.
    """
    try:
        return Path(path).read_text("utf-8-sig")
    except FileNotFoundError:
        raise Misconfigured(f"{what}: there is no {path}" + (f". {missing}" if missing else "")) from None
    except OSError as error:
        raise Misconfigured(f"{what}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Misconfigured(f"{what}: {path} is not UTF-8 text: save it as UTF-8") from None


def read_password(path: Path | str, what: str) -> str:
    """Return the first line of a file, which is a password. Raises `Misconfigured`, also if the line is empty."""
    password = read_text(path, what).partition("\n")[0]
    if not password:
        raise Misconfigured(f"{what}: the first line of {path} is empty: expected a password")
    return password
