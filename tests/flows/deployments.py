"""Parsers to deploy: folders with a package of one module, packed as wheels."""

from pathlib import Path
from textwrap import dedent

from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import Change, ParserEntry, with_parser
from fogline_cloud.parser_kit.packing import wheel_of

HEAD = """\
from fogline.errors import Poison
from fogline_cloud.flows.parsers import Leftover, Reading, Retry, Skip
"""
ACME = "application/vnd.acme"
"""Content type of the parser `acme`."""


def parser_folder(folder: Path, source: str, *, name: str = "acme", module: str = "acme_parser", **more: str) -> Path:
    """Write the folder of a parser. `more`: further files by name, with `__` for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "fogline-parser-{name}"\nversion = "1"\n[project.entry-points."fogline.parsers"]\n'
        f'{name} = "{module}:parse"\n'
    )
    (folder / f"{module}.py").write_text(HEAD + dedent(source))
    for file, text in more.items():
        (folder / file.replace("__", ".")).write_text(dedent(text))
    return folder


def reads(metric: str, factor: float = 1.0) -> str:
    """Return a parser that reads a number."""
    return f"""
        def parse(event):
            yield Reading("{metric}", float(event.data) * {factor})
    """


def deploy(
    log: ParserLog, folder: Path, *, name: str = "acme", kinds: tuple[str, ...] = (ACME,), accept_dead: bool = False
) -> ParserEntry:
    """Deploy a folder as the API does, without its checks."""
    digest = log.put_file(wheel_of(folder))
    return log.append(
        Change.DEPLOY, name, "alice", "", lambda now: with_parser(now, name, digest, kinds, accept_dead=accept_dead)
    )
