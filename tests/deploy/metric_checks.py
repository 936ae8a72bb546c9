"""Checks of files that name metrics."""

import re
import subprocess
from pathlib import Path

from fogline.process.monitoring.metrics import METRICS, MetricType


def promtool(*arguments: str | Path) -> None:
    found = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, f"promtool {arguments}:\n{found.stdout}{found.stderr}"


def unknown_metrics(text: str) -> set[str]:
    """Return the names in a text that no process exports. A histogram has three further names."""
    exported = set(METRICS)
    for metric in METRICS.values():
        if metric.type is MetricType.HISTOGRAM:
            exported |= {f"{metric.name}_{end}" for end in ("bucket", "sum", "count")}
    return set(re.findall(r"\bfogline_\w+", text)) - exported
