"""Runs a parser on events as the flow does: with its limits, and in a child process, so that a crash of it ends no test."""

import importlib
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from fogline.errors import Misconfigured
from fogline.events.event import Event
from fogline.process.files.user_file import read_text
from fogline_cloud.flows.parsers import GROUP, Parser, installed
from fogline_cloud.flows.sandbox.parser_runner import ParseResult
from fogline_cloud.flows.sandbox.task_parsers import TaskParsers
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.settings import FlowSettings


def try_parser(parser: Parser, events: Sequence[Event], name: str = "parser") -> list[ParseResult]:
    """Return the result of each event, with the default limits of `[flow]`. Must be called in the main thread."""
    limits = FlowSettings()
    with TimeLimit(limits.parse_limit_ms / 1000) as limit:
        parsers = TaskParsers({name: parser}, limit, limits.parse_memory_mib << 20, {name}, limits.max_readings)
        return parsers.results([(name, event) for event in events])


def find_parser(name: str, folder: Path | None) -> Parser:
    """Return an installed parser, or the parser of the project in `folder`. Raises `Misconfigured`."""
    if folder is not None:
        return _parser_in(folder, name)
    if name not in installed():
        known = ", ".join(sorted(installed()))
        raise Misconfigured(f"no parser {name} is installed (installed: {known}). --path FOLDER takes one from a folder")
    return installed()[name]


def _parser_in(folder: Path, name: str) -> Parser:
    path = folder / "pyproject.toml"
    try:
        project = tomllib.loads(read_text(path, "--path")).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"{path}: {error}") from None
    target = project.get("entry-points", {}).get(GROUP, {}).get(name)
    if target is None:
        raise Misconfigured(f'{path}: no parser {name} in [project.entry-points."{GROUP}"]')
    module, _, attribute = target.partition(":")
    for each in (folder, folder / "src"):
        sys.path.insert(0, str(each.resolve()))
    try:
        found: Parser = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a plugin's module may raise anything while it is imported
        raise Misconfigured(f"{path}: {name} = {target} cannot be loaded: {error!r}") from error
    return found
