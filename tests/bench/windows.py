"""Hourly windows of table `readings`, kept by `frames.windows`, beside one plain aggregate over all rows, in one session."""

from processes import Bench, Failed

ROWS = 25
"""Rows, as a multiple of the events of the gateway's row: a million."""
LIMIT_S = 900.0


def measure(bench: Bench) -> dict[str, float]:
    """Return seconds: all windows; a look without changes; 1,000 late rows of 100 days; 1,000 rows of the last day."""
    folder = bench.subfolder("windows")
    config = folder / "cloud.toml"
    config.write_text('tenant = "t"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[flow]\ntables = "tables"\n')
    seconds: dict[str, float] = {}
    with bench.child("windows_job", *bench.program("windows_job"), config, folder, ROWS * bench.events) as child:
        for line in child.lines(LIMIT_S):
            if "seconds" in line:
                seconds[line["step"]] = line["seconds"]
            elif not line.get("equal", True):
                raise Failed("the windows are not those of one query")
        if child.wait(LIMIT_S):
            raise Failed(f"windows_job: it {child.end}")
    plain = seconds["plain"]
    steps = {f"windows.{name}": each for name, each in seconds.items()}
    return {**steps, **{f"windows.{name}_ratio": seconds[name] / plain for name in ("first", "late", "live")}}
