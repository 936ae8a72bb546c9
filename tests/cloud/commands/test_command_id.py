"""Identifiers of commands: the same for every copy, made by bridges only."""

from fogline.address import check_identifier
from fogline_cloud.commands.command_id import CommandIds

OURS, OTHERS = CommandIds(b"k" * 32), CommandIds(b"o" * 32)
MESSAGE = ("acme", "me", "me/1", "string:m1")


def test_every_bridge_with_the_key_gives_a_message_the_same_identifier():
    assert OURS.of_message(*MESSAGE) == CommandIds(b"k" * 32).of_message(*MESSAGE)
    assert len({OURS.of_message(*MESSAGE[:index], "x", *MESSAGE[index + 1 :]) for index in range(4)}) == 4
    assert check_identifier(OURS.of_message(*MESSAGE), "command id")


def test_command_id_cannot_be_made_without_the_key():
    """B2: what an operator's message contains is not secret, so the identifier must not follow from it alone."""
    assert OURS.of_message(*MESSAGE) != OTHERS.of_message(*MESSAGE)
    assert OURS.new() != OURS.new()


def test_a_bridge_knows_the_identifiers_that_bridges_made():
    """B2: those of another tenant's bridges, shorter or longer ones and made-up ones are not."""
    for made in (OURS.of_message(*MESSAGE), OURS.new()):
        assert OURS.issued(made)
        assert not OTHERS.issued(made)
        assert not OURS.issued(made[:-1])
        assert not OURS.issued(made + "0")
        assert not OURS.issued(made[:-1] + ("0" if made[-1] != "0" else "1"))
    assert not OURS.issued("")
    assert not OURS.issued("ä" * 32)


def test_the_key_is_not_in_the_repr():
    assert "k" * 8 not in repr(OURS)
