"""A large body while it comes, as the pure parts of adapters see it."""

from typing import Protocol


class StoredBody(Protocol):
    """See `fogline_edge.adapters.bodies.upload.BodyUpload`."""

    @property
    def crowded(self) -> bool:
        """True while no more of it should be read, and after it was given up for want of room."""

    def write(self, data: bytes) -> None:
        """Add the next bytes. Raises `Poison` (`too-big`, `late`), and `SlowDown` if it was given up for want of room."""

    def give_up(self) -> None:
        """End a body that does not come whole."""
