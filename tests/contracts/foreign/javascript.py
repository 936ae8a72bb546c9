"""rhea, run by Node: the scripts in rhea/ get their options as JSON and print what happened as JSON."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contracts.foreign.clients import CLIENT_LIMIT_S, Id, Note, Reply, Sent
from fogline.process.files.tls_files import TlsSettings
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import PASSWORD

SCRIPTS = Path(__file__).parent / "rhea"


class Rhea:
    """See `ForeignClient`. `websocket`: it speaks AMQP over WebSocket, by the library `ws`."""

    def __init__(
        self, port: int, tenant: str, security: Mapping[str, object] | None = None, *, websocket: bool = False
    ) -> None:
        assert (SCRIPTS / "node_modules" / "rhea").exists(), "rhea is not installed: run deploy/setup/setup.sh"
        self._options = {"port": port, "tenant": tenant, "security": security or {}, "websocket": websocket}

    async def commands(self, device: str, ids: Sequence[Id], *, durable: bool = False) -> tuple[list[Sent], list[Reply]]:
        told = await self._run("command.js", device=device, ids=ids, header={"durable": durable})
        replies = [Reply(**{**each, "correlation": tuple(each["correlation"])}) for each in told["replies"]]
        return [Sent(**each) for each in told["outcomes"]], replies

    async def send(self, target: str | None, *notes: Note) -> list[Sent]:
        return [Sent(**each) for each in await self._run("telemetry.js", target=target, messages=[*map(asdict, notes)])]

    async def refused(self, *, senders: Sequence[Any] = (), receivers: Sequence[Any] = ()) -> list[Sent]:
        told = await self._run("links.js", senders=senders, receivers=receivers)
        return [Sent("ended", **each) for each in told]

    async def events(self, address: str, count: int, selector: str | None = None) -> list[tuple[str, str]]:
        found = await self._run("events.js", address=address, selector=selector, count=count)
        return [(device, body) for device, body in found]

    async def devices(self, tenant: str, **properties: object) -> tuple[list[str], int]:
        names, more = await self._run("lists.js", address=f"device/{tenant}", properties=properties)
        return names, more

    async def oversize(self, target: str, size_bytes: int) -> tuple[Sent, Sent]:
        told = await self._run("oversize.js", target=target, sizeBytes=size_bytes)
        return Sent("ended", **told["end"]), Sent(**told["other"])

    async def _run(self, script: str, **options: object) -> Any:
        process = await asyncio.create_subprocess_exec(
            "node",
            str(SCRIPTS / script),
            json.dumps({**self._options, **options}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await within(process.communicate(), f"{script} does not end", CLIENT_LIMIT_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, f"{script}: {err.decode()}"
        return json.loads(out)


def rhea_security(files: TlsSettings, how: str) -> dict[str, object]:
    """Return rhea's options for a client that logs in by `how`: "certificate" or "password"."""
    shown: dict[str, object] = {"transport": "tls", "ca": Path(files.ca).read_text()}
    if how == "password":
        return {**shown, "username": "alice", "password": PASSWORD}
    assert files.certificate is not None
    assert files.key is not None
    own = {"cert": Path(files.certificate).read_text(), "key": Path(files.key).read_text()}
    return {**shown, **own, "enable_sasl_external": True}
