"""The parts of the API that its handlers share: logins, rights, quotas, commands and the feed."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request

from fogline.address import CommandAddress, Reports
from fogline.transport.loopback import is_loopback
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal
from fogline_cloud.access.quotas import Quotas, over_quota
from fogline_cloud.api.command_index import CommandIndex
from fogline_cloud.api.command_index import Request as CommandRequestKey
from fogline_cloud.api.feed import Feed
from fogline_cloud.api.logins import Logins, User
from fogline_cloud.api.problems import Problem, not_at_present
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.kafka.record_tail import RecordTail
from fogline_cloud.parser_kit.deploying import ParserDeployments


@dataclass(slots=True)
class ApiCounters:
    """Counts of the API, for `/metrics`."""

    requests: dict[str, int] = field(default_factory=lambda: {f"{digit}xx": 0 for digit in range(2, 6)})
    connections_refused: int = 0
    logins_refused: int = 0


@dataclass(slots=True, kw_only=True)
class ApiContext:
    """One API process. Used on the loop."""

    tenant: str
    policy: Policy
    logins: Logins
    commands: CommandIndex
    feed: Feed
    tail: RecordTail
    devices: DeviceTable
    deployments: ParserDeployments
    max_streams: int
    quotas: Quotas = field(default_factory=Quotas)
    counters: ApiCounters = field(default_factory=ApiCounters)
    drafts: dict[CommandRequestKey, CommandRecord] = field(default_factory=dict)
    device_change: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the next change of a device; then there is a new one."""
    tail_loaded: bool = False
    """True once all records were taken that Kafka had at the start."""
    closing: list[Callable[[], None]] = field(default_factory=list)
    """What else ends with this process."""
    streams: int = 0
    stopping: bool = False

    async def user(self, request: Request, authorization: str | None = None) -> User:
        """Return the user of a request. `authorization`: in place of that header. Raises `Problem`."""
        if self.stopping:
            raise not_at_present("the API is stopping")
        self.check_origin(request)
        address = "" if request.client is None else request.client.host
        return await self.logins.user(authorization or request.headers.get("authorization"), address)

    def check_origin(self, request: Request) -> None:
        """Raise `Problem` (403) for a request that another web site's page makes in the browser of a user."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Problem(403, "requests from pages of other web sites are not allowed")
        if not self.logins.has_passwords and not is_loopback(_name_of(host)):
            raise Problem(403, "without TLS at the bridge, the host of a request must be 127.0.0.1 or localhost")

    def count(self, principal: Principal, *, events: int = 0, commands: int = 0, size_bytes: int = 0) -> None:
        """Count a message against the quota of a user. Raises `Problem` (429): HTTP has no credit that could be withheld."""
        now_s = time.monotonic()
        use = self.quotas.use(principal, self.policy.quota(principal), now_s)
        if use is None:
            return
        if (owed_s := use.owed_s(now_s)) > 0:
            raise Problem(429, over_quota(principal, owed_s), retry_after_s=owed_s)
        use.count(now_s, events=events, commands=commands, size_bytes=size_bytes)

    def may_see(self, principal: Principal, device: str, command: str = "") -> bool:
        """Return True if a user may read about a device, or a command."""
        may_command = self.policy.may(principal, Action.RECEIVE, CommandAddress(self.tenant, device), command)
        return may_command or (
            not command and self.policy.may(principal, Action.SEND, Reports("telemetry", self.tenant, device))
        )

    def require_records(self) -> None:
        """Raise `Problem` (503) if the commands on Kafka were not read yet."""
        if not self.tail_loaded:
            raise not_at_present(f"commands cannot be read at present: {self.tail.behind}")


def _name_of(host: str) -> str:
    """Return the name or address in the header `Host`, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
