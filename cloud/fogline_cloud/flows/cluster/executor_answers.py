"""What the executors of a cluster answered, compared with the driver: one sentence names the first difference. Pure."""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.settings import Scalar

_LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor (\S+?)\): (.*)")
_VERSION = re.compile(r"PYTHON_VERSION_MISMATCH\]? Python in worker has different version: (\S+)")
_NO_WORKER = re.compile(r"Error from python worker:\n((?:[ \t]+.*\n?)+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_CLASS = re.compile(r"(?:ClassNotFoundException|NoClassDefFoundError|UNEXPECTED_CLASS_TYPE|class not found)\W+([\w.$/]+)")
_ARCHIVED = "run `fogline flow archive` again"
_INSTALLED = "install the driver's packages there, or set [flow] archive (`fogline flow archive`)"


class ExecutorQuestion(msgspec.Struct, frozen=True):
    """What an executor is asked. `kafka`: settings that name no file. `probe`: the file that it writes into `folder`."""

    packages: list[str]
    kafka: dict[str, Scalar]
    folder: TableFolder
    probe: str


class ExecutorAnswer(msgspec.Struct, frozen=True):
    """What a process said about itself.

    `process`: the executor. `packages`: versions. `code`: digests of our packages. `parsers`: entry point and digest of each.
    `failures`: what it could not do (`import`, `kafka`, `store`), and why.
    """

    host: str
    process: str
    python: str
    packages: dict[str, str]
    code: dict[str, str]
    parsers: dict[str, str]
    failures: dict[str, str]
    probe: str


class Deployment(msgspec.Struct, frozen=True):
    """What a sentence needs to name the remedy: the settings `tables`, `archive` and `bootstrap.servers`, and the master."""

    tables: str
    bootstrap: str
    master: str
    has_archive: bool

    @property
    def remedy(self) -> str:
        """The remedy for packages that differ."""
        return _ARCHIVED if self.has_archive else _INSTALLED


def problems(driver: ExecutorAnswer, answers: Sequence[ExecutorAnswer], unseen: AbstractSet[str], at: Deployment) -> list[str]:
    """Return one sentence for each executor that differs from the driver, or does not reach what it needs.

    `unseen`: probes that the driver does not find.
    """
    found: dict[str, str] = {}
    for each in answers:
        if each.process not in found and (why := _problem(driver, each, unseen, at)):
            found[each.process] = f"the executor on {each.host} {why}"
    return list(found.values())


def _problem(driver: ExecutorAnswer, answer: ExecutorAnswer, unseen: AbstractSet[str], at: Deployment) -> str:
    failures = answer.failures
    if "import" in failures:
        return f"cannot load what a flow needs ({failures['import']}): {at.remedy}"
    if difference := _difference(driver, answer):
        return f"{difference}: {at.remedy}"
    if "kafka" in failures:
        return (
            f"cannot reach Kafka ({failures['kafka']}): let its machine connect to {at.bootstrap}, "
            "and to the advertised addresses of the brokers"
        )
    if "store" in failures:
        return f"cannot write to [flow] tables = {at.tables} ({failures['store']}): give its machine access"
    if answer.probe in unseen:
        return (
            f"writes files into [flow] tables = {at.tables} that the driver does not see: with master = {at.master}, "
            "use a URL, or a folder that all machines share"
        )
    return ""


def _difference(driver: ExecutorAnswer, answer: ExecutorAnswer) -> str:
    """Return what the executor has in place of the driver's code, packages or parsers, or an empty text."""
    for kind, ours, theirs in (
        ("code", driver.code, answer.code),
        ("package", driver.packages, answer.packages),
        ("parser", driver.parsers, answer.parsers),
    ):
        for name in sorted({*ours, *theirs}):
            own, other = ours.get(name, ""), theirs.get(name, "")
            if own and not other:
                return f"has no {name}" if kind == "code" else f"has no {kind} {name}"
            if other and not own:
                return f"has {kind} {name}, and the driver does not"
            if own != other:
                what = {"code": "other code of", "package": "another version of", "parser": "other code of parser"}[kind]
                return f"has {what} {name} than the driver" + (f" ({other}, not {own})" if kind == "package" else "")
    return ""


def failed_task(text: str, python: str, at: Deployment) -> str:
    """Return the sentence for Spark's own failure of the question, or an empty text for one that is not known.

    `text`: Spark's message. `python`: the driver's version of Python.
    """
    lost = _LOST_TASK.search(text)
    executor = f"the executor on {lost[1]}" if lost else "an executor"
    if other := _VERSION.search(text):
        name = f"python{python}"
        return (
            f"{executor} runs Python {other[1].rstrip(',')}, the driver {python}: install {name} there, "
            f'and set [flow.spark] "spark.pyspark.python" = "{name}"'
        )
    if program := _NO_PROGRAM.search(text):
        return f'{executor} has no {program[1]}: install it there, or name another one in [flow.spark] "spark.pyspark.python"'
    if worker := _NO_WORKER.search(text):
        return (
            f"{executor} cannot start a Python worker ({worker[1].strip().splitlines()[-1].strip()}): install python{python} "
            f'there, and set [flow.spark] "spark.pyspark.python" = "python{python}"'
        )
    if missing := _NO_CLASS.search(text):
        return (
            f"{executor} has no jar with the class {missing[1]}: start the flow by `fogline flow run --master {at.master}`, "
            "or by the line that `fogline flow submit-options` prints"
        )
    return f"{executor} cannot run a task: {lost[3][:300]}" if lost else ""
