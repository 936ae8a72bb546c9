"""`fogline command` as a process."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from fogline_lab.amqp import within

FOGLINE = Path(sys.executable).parent / "fogline"


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


async def fogline(line, *arguments: str, group: str = "command") -> Ended:
    config = line.folder / "cloud.toml"
    config.write_text(f'tenant = "{line.tenant}"\n[operator]\nbridge = "127.0.0.1:{line.port}"\n')
    process = await asyncio.create_subprocess_exec(
        FOGLINE,
        group,
        *arguments,
        "--config",
        config,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await within(process.communicate(), f"fogline {group} {arguments} does not end", 90)
    return Ended(process.returncode or 0, out.decode(), err.decode())
