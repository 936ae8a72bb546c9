"""A message of a rule on a local topic, for programs on the site."""

import msgspec

from fogline.events.event import Lane


class MessageNote(msgspec.Struct, frozen=True):
    """What the outbox keeps of a message until it is published. `lane`: of the event on which the rule acted."""

    rule: str
    event: str
    topic: str
    lane: Lane


class RuleMessage(msgspec.Struct, frozen=True):
    """A message to publish. `key`: of its note among the kept values, which is deleted after the message was published."""

    key: str
    note: MessageNote
    device: str
    data: bytes
    content_type: str | None
