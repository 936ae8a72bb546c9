"""Prints text on an operator's terminal. Text of a device or a peer can neither control the terminal nor forge a line."""

import sys


def escaped(text: str) -> str:
    r"""Return `text` on one line, with Python's escape (`\x1b`, `\n`, `\u202e`) for each character that does not print."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def show(text: str) -> None:
    """Print one line on stdout."""
    sys.stdout.write(escaped(text) + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Print one line on stderr."""
    sys.stderr.write(escaped(text) + "\n")
    sys.stderr.flush()


def clear() -> None:
    """Clear the terminal, if stdout is one, so that the next output is in place of the last one."""
    if sys.stdout.isatty():
        sys.stdout.write("\033[H\033[J")
        sys.stdout.flush()


def show_body(data: bytes) -> None:
    """Print what a device has answered: on one line if a person reads it, and as it is if a program does."""
    text = data.decode("utf-8", "replace")
    sys.stdout.write((escaped(text) if sys.stdout.isatty() else text) + "\n")
    sys.stdout.flush()


def show_progress(text: str) -> None:
    """Show a text in place of the last one, on a line of stderr that stays the last; "" clears it. Only on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{escaped(text)}\033[K")
        sys.stderr.flush()
