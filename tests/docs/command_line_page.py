"""Writes docs/reference/command-line.md: the conventions, and every command of both parsers. `make docs` runs this module."""

import runpy
from argparse import ArgumentParser
from pathlib import Path

from docs.command_parsers import parsers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "command-line.md"
_MAN = runpy.run_path(str(ROOT / "deploy" / "packages" / "man_page.py"))

_HEAD = """\
# The command line

`fogline` is for operators and the cloud side, `fogline-edge` for the gateway. This page is generated from their parsers by
`make docs`.

## Conventions

Every command of both programs keeps them; a test holds them (`tests/docs/test_command_conventions.py`).

| | convention |
|---|---|
| `--help` | what the command does, an example, and its exit statuses |
| `--config` | the settings file; by default `cloud.toml` or `edge.toml` here, else that of the package |
| `--json` | the result as JSON on stdout. `command send` has `--output json`, because its `--json` is the command's \
arguments. `bridge run`, `api run` and `fogline-edge run` print a JSON line with their addresses in any case |
| a list | has a header line, and a sentence on stderr if there is nothing to list; the exit status is 0 then too |
| `--limit` | the most rows of a list; each says in its `--help` which, and how many without the option |
| `--state` | only what is in this state: `command list`, `ca list` |
| `--watch` | of every `list` and `status`, and of `topics check`: prints it again every 2 seconds, in place on a terminal, \
until Ctrl-C (130). With `--json`, a line each time |
| `--bridge` | of `fogline command` and `fogline device`: the bridge to ask, instead of `operator.bridge` in the settings. \
They need no Kafka |
| `--version` | of `fogline` and `fogline-edge`: the version of the package |
| completion | `fogline completion bash`, `zsh` or `fish` prints what completes commands, options and files, and so does \
`fogline-edge completion`. The Debian packages bring it for all three, and manual pages (`man fogline`). Without them, put \
it into `~/.local/share/bash-completion/completions/fogline`, into a folder of zsh's `$fpath` as `_fogline`, or into \
`~/.config/fish/completions/fogline.fish` |
| a misspelt command | the error names the command that is meant |
| errors | one line on stderr: what is wrong, and the setting or command that helps |
| times | UTC, as `2026-11-27T12:00:00Z` (RFC 3339), in JSON too, except names that end with `_ms`: milliseconds since 1970. \
Lengths of time as `500ms`, `30s`, `5m`, `2h`, `7d` |

| exit status | meaning |
|---|---|
"""


def page() -> str:
    """Return the whole page."""
    statuses = "".join(f"| {status} | {meaning} |\n" for status, meaning in _MAN["EXIT_STATUSES"].items())
    return "\n".join([_HEAD + statuses, *(_program(parser) for parser in parsers())])


def _program(parser: ArgumentParser) -> str:
    parts = [f"## `{parser.prog}`\n"]
    for command, about in _MAN["commands"](parser):
        rows = "".join(f"| `{_in_cell(form)}` | {_in_cell(meaning)} |\n" for form, meaning in _MAN["options"](command))
        parts.append(f"### `{command.prog}`\n\n{about}\n\n```text\n{_MAN['usage'](command)}\n```\n")
        if rows:
            parts.append(f"| option | meaning |\n|---|---|\n{rows}")
    examples = "\n".join(text.strip() + "\n" for text in _MAN["examples"](parser))
    parts.append(f"### Examples of `{parser.prog}`\n\n```text\n{examples}```\n")
    return "\n".join(parts)


def _in_cell(words: str) -> str:
    return words.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
