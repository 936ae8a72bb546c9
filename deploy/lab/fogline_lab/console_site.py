"""A tenant whose operators have a page: a bridge with users, a gateway with devices, and the API, on a thread of their own."""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from fogline.process.files.durable_file import write_new
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.api.api import Api
from fogline_cloud.api_settings import ApiSettings, ApiTlsSettings
from fogline_cloud.authority.ca_folder import ROOT as AUTHORITY
from fogline_cloud.authority.certificates import Role
from fogline_cloud.bridge.door.passwords import password_line
from fogline_cloud.console.console import console_routes
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings, DeviceSettings, FlowSettings, Learn, OperatorSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.credentials.authority_folder import PASSWORD
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import Line, commandable
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until

LIMIT_S = 120.0
T = TypeVar("T")


class ConsoleSite:
    """The site. `users`: the names that `PASSWORD` lets in; `access`: the text of `access.toml`. A context manager.

    Device `lamp-1` answers to each command; those for `lamp-2` and `door-1` wait. `run` does something on the site's loop.
    `flow_door` stands for the metrics of a flow: closed, as when its process is killed.
    """

    def __init__(self, bootstrap: str, tenant: str, folder: Path, users: tuple[str, ...], access: str) -> None:
        self.tables = folder / "tables"
        self.flow_door = socket.create_server(("127.0.0.1", 0))
        self.flow_address = f"127.0.0.1:{self.flow_door.getsockname()[1]}"
        settings = CloudSettings(
            tenant=tenant,
            kafka={"bootstrap.servers": bootstrap},
            shards=2,
            devices=DeviceSettings(learn=Learn.ALL),
            flow=FlowSettings(tables=str(self.tables), metrics=self.flow_address),
        )
        create_topics(KafkaClients(settings.kafka), settings, 1)
        self.line, site = secure(Line(tenant, folder, settings))
        site.users.unlink()
        write_new(site.users, "\n".join(password_line(name, PASSWORD) for name in users).encode())
        self.users = site.users
        self.access = folder / "access.toml"
        self.access.write_text(access)
        files = site.files(Role.BRIDGE, "api")
        self.line.cloud = replace(
            self.line.cloud,
            bridge=replace(self.line.cloud.bridge, access=str(self.access), metrics="127.0.0.1:0"),
            operator=OperatorSettings(tls=TlsSettings(ca=str(site.ca.path / AUTHORITY))),
            api=ApiSettings(
                listen="127.0.0.1:0",
                rollouts=str(folder / "rollouts"),
                tls=ApiTlsSettings(certificate=str(files.certificate), key=str(files.key)),
            ),
        )
        self.url = ""
        self.api: Api
        self.device: CommandDevice
        self._loop = asyncio.new_event_loop()
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="console site", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(LIMIT_S), "the site does not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LIMIT_S)
        self.flow_door.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the site's loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits for the site
            self._failure = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            bridge, outbox, downlink = await stack.enter_async_context(commandable(self.line))
            self.device = CommandDevice(downlink)
            downlink.reachable(self.device.name, self.device)
            for device in ("lamp-2", "door-1"):
                await self.line.put(outbox, 2, device=device)
            await self.line.drained(outbox)
            operator = replace(self.line.cloud.operator, bridge=f"127.0.0.1:{self.line.port}")
            own = replace(self.line.cloud.bridge, metrics=bridge.metrics_address)
            self.api = Api(replace(self.line.cloud, operator=operator, bridge=own), console_routes)
            stack.push_async_callback(self.api.close)
            host, port = await self.api.start()
            await until(lambda: self.api.context.tail_loaded, "the API does not read Kafka")
            await until(lambda: len(self.api.context.devices) == 3, "the registry does not learn the devices")
            self.url = f"https://{host}:{port}"
            self._ready.set()
            await self._stop.wait()
