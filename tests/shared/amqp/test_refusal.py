"""A refusal is for good; a server that is too busy to check a password has refused nobody."""

import pytest

from fogline.amqp.login import PLAIN, Login, LoginVerdict
from fogline.amqp.outcome import UNAUTHORIZED, Condition
from fogline.amqp.refusal import refusal_in
from fogline.amqp.sasl import ClientSasl, SaslError, ServerSasl


@pytest.mark.fault("S7")
@pytest.mark.parametrize(("verdict", "is_refusal"), [(LoginVerdict.REFUSED, True), (LoginVerdict.BUSY, False)])
def test_a_password_that_was_not_checked_is_tried_again_and_a_wrong_one_is_not(verdict, is_refusal):
    client, server = ClientSasl(Login(PLAIN, "alice", "secret"), "host"), ServerSasl([PLAIN])
    for _ in range(3):
        server.receive(client.data_to_send())
        client.receive(server.data_to_send())
    with pytest.raises(SaslError):
        server.answer(verdict)
    with pytest.raises(SaslError) as told:
        client.receive(server.data_to_send())
    assert bool(refusal_in(str(Condition(UNAUTHORIZED, str(told.value))))) is is_refusal
