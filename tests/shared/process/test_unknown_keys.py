"""A misspelt key of the settings is answered with the one that is meant, in any table."""

import pytest

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import convert_settings
from fogline_cloud.settings import CloudSettings
from fogline_edge.settings import EdgeSettings

EDGE = {"tenant": "acme", "gateway": "gw-1", "data": "d", "uplink": {"bridge": "a:1"}}


@pytest.mark.parametrize(
    ("kind", "raw", "meant"),
    [
        (CloudSettings, {"tennant": "acme"}, "did you mean tenant?"),
        (CloudSettings, {"tenant": "acme", "bridge": {"listn": "a:1"}}, "did you mean listen?"),
        (CloudSettings, {"tenant": "acme", "operator": {"tls": {"ca": "a", "certficate": "b"}}}, "did you mean certificate?"),
        (EdgeSettings, {**EDGE, "mqtt": {"prot": 1883}}, "did you mean port?"),
        (EdgeSettings, {**EDGE, "mqtt_clients": [{"nmae": "a"}]}, "did you mean name?"),
    ],
    ids=str,
)
def test_an_unknown_key_is_answered_with_the_one_that_is_meant(kind, raw, meant):
    with pytest.raises(Misconfigured) as error:
        convert_settings(raw, kind, "cloud.toml")
    assert str(error.value).endswith(meant)


def test_an_unknown_key_that_resembles_none_is_only_named():
    with pytest.raises(Misconfigured) as error:
        convert_settings({"tenant": "acme", "zzzzzz": 1}, CloudSettings, "cloud.toml")
    assert "did you mean" not in str(error.value)
