"""A gateway that takes keys of devices from its bridge, without adapters."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fogline.commands.signature import TrustedKeys
from fogline.gateway.message_signature import GatewayName
from fogline_edge.credentials.credential_file import CredentialFile
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.credentials.credential_updates import CredentialUpdates
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings
from fogline_lab.gateway.connected_gateway import running_uplink


@asynccontextmanager
async def keyed_gateway(settings: EdgeSettings, keys: TrustedKeys | None = None) -> AsyncIterator[CredentialStore]:
    """Open a gateway that is connected to the bridge of its settings, for the length of a block. Yields the keys it has."""
    outbox = Outbox.open(settings)
    file = CredentialFile(Path(settings.data), f"{settings.tenant}/{settings.gateway}")
    name = GatewayName(settings.tenant, settings.gateway)
    updates = CredentialUpdates(file.read(), file, name, keys or TrustedKeys())
    try:
        async with updates.running(), running_uplink(outbox, settings.uplink, credentials=updates):
            yield updates.store
    finally:
        await outbox.close()
