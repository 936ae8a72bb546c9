"""Starts the export of a process, if its settings ask for it. Without it, nothing of the exporter is imported."""

import contextlib
from collections.abc import Iterator
from importlib.metadata import version

from fogline.tracing.settings import TracingSettings
from fogline.tracing.spans import ExportSpans


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
    try:
        yield exporter.export
    finally:
        exporter.close()
