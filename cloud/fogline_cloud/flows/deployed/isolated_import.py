"""Imports a parser from its own folder, so that it gets its own modules, whatever else has modules of these names.

A worker lives long: it has imported version 1 of a package when version 2 is deployed, and another team may have named a module
the same. So the modules of a package are in `sys.modules` only while its parser runs. Another parser's call takes them out,
and puts its own in; the modules stay as they are, also those that a parser imports within a call.

Used in the main thread only, where parsers run one after the other.
"""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from fogline.events.event import Event
from fogline_cloud.flows.parsers import Leftover, Parser, Reading


class _Switch:
    """Which package has its modules in `sys.modules`, if one has."""

    def __init__(self) -> None:
        self.active: IsolatedPackage | None = None

    def to(self, package: "IsolatedPackage | None") -> None:
        """Take the modules of the active package out, and put those of this one in."""
        if package is not self.active:
            if self.active is not None:
                self.active.leave()
            self.active = None
            if package is not None:
                package.enter()
                self.active = package


_SWITCH = _Switch()


class IsolatedPackage:
    """The modules of one unpacked wheel. `names`: its top-level modules."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        self._folder = str(folder)
        self._names = frozenset(names)
        self._own: dict[str, ModuleType] = {}
        self._hidden: dict[str, ModuleType] = {}
        self._count = 0  # of all modules, after the last look

    def parser(self, target: str) -> Parser:
        """Import the parser `module:attribute`. Raises whatever the module does."""
        module, _, attribute = target.partition(":")
        former = _SWITCH.active
        _SWITCH.to(self)
        try:
            found = importlib.import_module(module)
            for name in attribute.split("."):
                found = getattr(found, name)
            if not callable(found):
                raise TypeError(f"{target} is not a function")
        finally:
            _SWITCH.to(former)
        return IsolatedParser(self, found)

    def enter(self) -> None:
        """Put the modules in. Others of the same names are hidden meanwhile."""
        self._hidden = self._taken()
        sys.modules.update(self._own)
        sys.path.insert(0, self._folder)
        self._count = len(sys.modules)

    def leave(self) -> None:
        """Take the modules out."""
        sys.path.remove(self._folder)
        if len(sys.modules) == self._count:  # none was imported meanwhile: looking at all names takes longer than a parser
            for name in self._own:
                del sys.modules[name]
        else:
            self._own = self._taken()
        sys.modules.update(self._hidden)

    def _taken(self) -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name.partition(".")[0] in self._names]
        return {name: sys.modules.pop(name) for name in names}


class IsolatedParser:
    """A parser of an isolated package. A reading that it yields is asked for before another parser is called.

    Its attributes, by which a parser asks for something (`isolated`, `large_bodies`), are those of the parser itself.
    """

    def __init__(self, package: IsolatedPackage | None, parser: Parser) -> None:
        self._package = package
        self._parser = parser

    def __getattr__(self, name: str) -> object:
        return getattr(self._parser, name)

    def __call__(self, event: Event) -> Iterable[Reading | Leftover]:
        """Parse one event with its own modules."""
        _SWITCH.to(self._package)
        return self._parser(event)


def beside_isolated(parser: Parser) -> Parser:
    """Return an installed parser that gets the installed modules, whatever a deployed one has in their place."""
    return IsolatedParser(None, parser)
