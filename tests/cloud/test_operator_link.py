"""An operator whom a bridge refuses is told who refuses what, and the setting or command that helps."""

import pytest

from fogline_cloud.cli.operators.operator_link import refused


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        (
            "the peer refuses the password of alice (PLAIN)",
            "operator.password_file, and the user at the bridge",
        ),
        ("tenant 'typo' is not served here", "Check `tenant`"),
        ("the peer refuses this side's certificate: it has expired", "Check [operator.tls]"),
        ("the peer does not speak TLS", "Check [operator.tls], and the port of operator.bridge"),
        ("alice may not send command/acme/lamp-1", "See bridge.access at the bridge (docs/access.md)"),
        ("something else", "See the log of the bridge"),
    ],
)
def test_refusal_names_its_remedy(why, remedy):
    text = str(refused("fog.example", 5671, why))
    assert text.startswith(f"the bridge at fog.example:5671 refuses the connection: {why}. ")
    assert remedy in text
