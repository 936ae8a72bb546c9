"""Takes the credentials of devices from the bridge: they count at once, and are accepted when they are on the disk."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, RESOURCE_LIMIT, Outcome, rejected
from fogline.commands.signature import TrustedKeys
from fogline.gateway.credential_transfer import CredentialOpener, CredentialUpdate
from fogline.gateway.device_credentials import DeviceCredentials
from fogline.gateway.message_signature import GatewayName
from fogline.message import Message
from fogline.process.cancellation import end_tasks
from fogline.process.loop_calls import on_thread
from fogline_edge.credentials.credential_file import CredentialFile
from fogline_edge.credentials.credential_store import MAX_DEVICES, CredentialStore

_log = logging.getLogger("fogline.credentials")

Settle = Callable[[Outcome], None]


class CredentialUpdates:
    """The credentials of a running gateway. `keys`: those that may sign; without any, no signature is needed."""

    def __init__(self, store: CredentialStore, file: CredentialFile, name: GatewayName, keys: TrustedKeys) -> None:
        self.store = store
        self._file, self._name, self._keys = file, name, keys
        self._opener: CredentialOpener | None = None
        self._parts: list[DeviceCredentials] = []
        self._turn = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def begin(self) -> str:
        """Begin with the messages of a new connection. Return its public key for hello."""
        self._opener = CredentialOpener(self._name, self._keys)
        self._parts = []
        return self._opener.public_key

    def received(self, message: Message, settle: Settle) -> None:
        """Take a message. `settle` is called once: accepted if the gateway has durably what it says. Raises `Poison`."""
        if self._opener is None:
            settle(RELEASED)
            return
        update = self._opener.open(message)
        if update.offer:
            settle(ACCEPTED if update.offer == self.store.digest else RELEASED)
            return
        if (refusal := self._take(update)) is not None:
            settle(refusal)
            return
        task = asyncio.create_task(self._write(settle), name="credentials")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Tell of keys whose time is over, within this. Then wait for what is being written."""
        task = asyncio.create_task(self._watch_ends(), name="ends of credentials")
        try:
            yield
        finally:
            await end_tasks(task)
            if self._writing:
                await asyncio.wait(self._writing)

    def _take(self, update: CredentialUpdate) -> Outcome | None:
        """Let an update count. Return the outcome if nothing needs to be written."""
        if not update.whole:
            if len({each.device for each in (*self.store.all, *update.devices)}) > MAX_DEVICES:
                return _too_many()
            self.store.change(update.devices, update.gone)
        else:
            self._parts += update.devices
            if len(self._parts) > MAX_DEVICES:
                self._parts = []
                return _too_many()
            if update.more:
                return ACCEPTED
            parts, self._parts = self._parts, []
            self.store.replace(parts)
        self._changed.set()
        _log.info("the bridge has sent credentials: %d devices have keys", len(self.store))
        return None

    async def _write(self, settle: Settle) -> None:
        async with self._turn:
            devices = self.store.all
            try:
                await on_thread("credentials", lambda: self._file.write(devices))
            except OSError as error:
                _log.error("the credentials of devices cannot be written, and count until the gateway stops: %s", error)
                settle(MODIFIED)
            else:
                settle(ACCEPTED)

    async def _watch_ends(self) -> None:
        while True:
            wait_s = self.store.end_expired()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wait_s is None else wait_s + 0.01):
                    await self._changed.wait()


def _too_many() -> Outcome:
    return rejected(RESOURCE_LIMIT, f"a gateway keeps the credentials of {MAX_DEVICES} devices")
