"""One budget of bytes for the unfinished input of all peers of a process. Pure.

Bounds by packet, by connection and by listener do not bound their sum: a thousand peers that each stay within theirs would
exhaust the process. So every listener opens a `ByteAccount` for each peer, and counts what it keeps of it from the first byte
until the packet is whole or given up. Peers that have not logged in have a quarter of the budget for themselves, and the others
have the rest: neither pushes the other out.

If there is not enough, the owner with the most bytes loses its largest account, of equal ones the newest. An owner is an
address before the login and a proven name after it, so a client with many connections loses before one with few.
"""

from collections.abc import Callable
from typing import Final

LOGIN_BYTES: Final = 16 * 1024
"""The most bytes that a listener keeps of a peer that has not logged in."""
DEFAULT_BYTES: Final = 32 * 1024 * 1024
STRANGERS: Final = 4
"""Peers that have not logged in have this part of the budget: one in so many bytes."""


class ByteAccount:
    """The bytes of one peer. `give_up` is called if others need them more: drop the bytes and end the peer's input.

    The listener calls `close` when the peer has ended; `give_up` is not called after that.
    """

    __slots__ = ("_pool", "_pools", "give_up", "held_bytes", "owner")

    def __init__(self, pools: "tuple[_Pool, _Pool]", owner: str, give_up: Callable[[], None]) -> None:
        self.held_bytes = 0
        self.owner = owner
        self.give_up = give_up
        self._pools = pools
        self._pool = pools[0]

    def hold(self, size_bytes: int) -> bool:
        """Count `size_bytes` from now on. Returns False if there is no room: the peer must be refused, and nothing counts."""
        return size_bytes == self.held_bytes or self._pool.change(self, size_bytes)

    def admit(self, owner: str) -> None:
        """Note that the peer has logged in, or need not log in. `owner`: its proven name, or else its address."""
        held_bytes = self.held_bytes
        self.hold(0)
        self.owner, self._pool = owner, self._pools[1]
        if not self.hold(held_bytes):
            self.give_up()

    def close(self) -> None:
        """Count nothing, and forget the peer: no reference cycle is left. Safe to call twice."""
        self.hold(0)
        self.give_up = _nothing


def _nothing() -> None:
    """The peer has ended."""


class ByteBudget:
    """The budget of one process, at most `most_bytes`. Used on the loop."""

    def __init__(self, most_bytes: int = DEFAULT_BYTES) -> None:
        strangers = most_bytes // STRANGERS
        self._pools = _Pool(strangers), _Pool(most_bytes - strangers)

    @property
    def held_bytes(self) -> int:
        """The bytes of all peers."""
        return sum(pool.held_bytes for pool in self._pools)

    @property
    def given_up(self) -> int:
        """Number of peers that had to be refused, or to give up their bytes, so far."""
        return sum(pool.given_up for pool in self._pools)

    def open(self, address: str, give_up: Callable[[], None]) -> ByteAccount:
        """Return the account of a new peer at `address`, which has not logged in."""
        return ByteAccount(self._pools, address, give_up)


class _Pool:
    """The accounts that hold bytes, by owner."""

    def __init__(self, most_bytes: int) -> None:
        self.held_bytes = 0
        self.given_up = 0
        self._most_bytes = most_bytes
        self._accounts: dict[str, dict[ByteAccount, None]] = {}  # oldest first
        self._sums: dict[str, int] = {}

    def change(self, account: ByteAccount, size_bytes: int) -> bool:
        """See `ByteAccount.hold`."""
        self._set(account, size_bytes)
        while self.held_bytes > self._most_bytes:
            loser = self._first_to_go()
            self._set(loser, 0)
            self.given_up += 1
            if loser is account:
                return False
            loser.give_up()
        return True

    def _set(self, account: ByteAccount, size_bytes: int) -> None:
        owner, more = account.owner, size_bytes - account.held_bytes
        account.held_bytes = size_bytes
        self.held_bytes += more
        self._sums[owner] = self._sums.get(owner, 0) + more
        accounts = self._accounts.setdefault(owner, {})
        if size_bytes:
            accounts[account] = None
            return
        accounts.pop(account, None)
        if not accounts:
            del self._accounts[owner], self._sums[owner]

    def _first_to_go(self) -> ByteAccount:
        crowd = max(self._sums, key=self._sums.__getitem__)
        return max(reversed(self._accounts[crowd]), key=lambda account: account.held_bytes)
