"""What a process says about itself and what it reaches: the driver asks each executor of a cluster before the first batch.

The functions are sent to executors as code, because an executor may have none of our packages. So nothing but the standard
library is imported until then, and question and answer are JSON.
"""

import hashlib
import json
import os
import socket
import sys
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_OURS = ("fogline", "fogline_cloud")
_LIMIT_S = 10.0


def describe(question: str) -> str:
    """Return this process's answer, JSON of an `ExecutorAnswer`. `question`: JSON of an `ExecutorQuestion`."""
    asked = json.loads(question)
    failures: dict[str, str] = {}
    for what, work in (("import", _import), ("kafka", _reach_kafka), ("store", _write)):
        if "import" not in failures:
            try:
                work(asked)
            except Exception as error:  # noqa: BLE001 - the answer is what failed, whatever it is
                failures[what] = f"{error}" or type(error).__name__
    host = socket.gethostname()
    answer = {
        "host": host,
        "process": f"{host}/{os.getppid()}",  # the executor, of which this worker is a child
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "packages": {name: _version(name) for name in asked["packages"]},
        "code": {name: _digest(name) for name in _OURS},
        "parsers": {each.name: f"{each.value} {_digest(each.value)}" for each in entry_points(group="fogline.parsers")},
        "failures": failures,
        "probe": asked["probe"],
    }
    return json.dumps(answer)


def _import(_: dict[str, Any]) -> None:
    from fogline_cloud.flows.driver import raw_sink  # noqa: F401, PLC0415 - it loads what tasks need
    from fogline_cloud.flows.parsers import installed  # noqa: PLC0415 - as above

    installed()


def _reach_kafka(asked: dict[str, Any]) -> None:
    from fogline_cloud.kafka.clients import KafkaClients  # noqa: PLC0415 - `_import` has found it

    KafkaClients(asked["kafka"]).topics(_LIMIT_S)


def _write(asked: dict[str, Any]) -> None:
    from fogline_cloud.flows.tables.files import TableFolder, write_probe  # noqa: PLC0415 - `_import` has found it
    from fogline_cloud.store.failure import failure_of  # noqa: PLC0415 - as above

    try:
        write_probe(TableFolder(**asked["folder"]), asked["probe"])
    except Exception as error:  # noqa: BLE001 - each client of the store has errors of its own
        raise failure_of(error, "writing") from None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _digest(entry: str) -> str:
    """Return a digest of the Python files of a top-level module, of which `entry` names a part. Empty if there is none."""
    name = entry.partition(":")[0].partition(".")[0]
    spec = find_spec(name)
    if spec is None:
        return ""
    folders = [Path(each) for each in spec.submodule_search_locations or ()]
    files = {str(path.relative_to(each)): path for each in folders for path in each.rglob("*.py")}
    if not folders and spec.origin is not None and Path(spec.origin).is_file():
        files = {name: Path(spec.origin)}
    found = hashlib.sha256()
    for relative, path in sorted(files.items()):
        if not {"test", "tests"} & set(Path(relative).parts):  # an archive has none
            found.update(relative.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
