"""Starts the export of a process, if its settings ask for it. Without it, nothing of the exporter is imported."""

import contextlib
from collections.abc import Callable, Iterator
from importlib.metadata import version

from fogline.process.monitoring.metrics import Sample
from fogline.tracing.settings import TracingSettings
from fogline.tracing.spans import ExportSpans

_dropped: list[Callable[[], int]] = []  # of each exporter of this process


@contextlib.contextmanager
def tracing(settings: TracingSettings | None, service: str, *, tenant: str, instance: str) -> Iterator[ExportSpans | None]:
    """Export spans within a block; yields None if `settings` is None. `service`: name of the program.

    Raises `Misconfigured` if the settings name no collector that can be used. The end of the block takes 2 s at most.
    """
    if settings is None:
        yield None
        return
    from fogline.tracing.exporter import SpanExporter  # noqa: PLC0415 - takes time and memory, and few processes are traced

    resource = {
        "service.name": service,
        "service.namespace": tenant,
        "service.instance.id": instance,
        "service.version": version("fogline"),
    }
    exporter = SpanExporter(settings, resource)
    _dropped.append(dropped := lambda: exporter.dropped)
    try:
        yield exporter.export
    finally:
        _dropped.remove(dropped)
        exporter.close()


def read_tracing() -> Iterator[Sample]:
    """Yield the counter of this process if it exports spans."""
    if _dropped:
        yield Sample("fogline_process_spans_dropped_total", sum(each() for each in _dropped))
