"""`fogline console` prints the address of the page that the settings serve, and opens it."""

import json
import webbrowser

import pytest

from fogline_cloud.cli.main import main
from fogline_cloud.cli.operators import console

TLS = '[api.tls]\ncertificate = "api.pem"\nkey = "api.key"\n'


@pytest.fixture
def config(folder):
    def write(api: str):
        path = folder / "cloud.toml"
        path.write_text(f'tenant = "t"\n{api}')
        return str(path)

    return write


@pytest.mark.parametrize(
    ("api", "address"),
    [
        ("", "http://127.0.0.1:8080/console"),
        ('[api]\nlisten = "10.0.0.5:8443"\n' + TLS, "https://10.0.0.5:8443/console"),
        ('[api]\nlisten = "[::1]:8080"\n', "http://[::1]:8080/console"),
        ('[api]\nlisten = "0.0.0.0:8443"\n' + TLS, "https://here.example:8443/console"),
    ],
)
def test_address_is_that_of_the_settings_without_asking_anybody(config, capsys, monkeypatch, api, address):
    monkeypatch.setattr(console.socket, "getfqdn", lambda: "here.example")
    assert main(["console", "--config", config(api)]) == 0
    assert capsys.readouterr().out == f"{address}\n"
    assert main(["console", "--json", "--config", config(api)]) == 0
    assert json.loads(capsys.readouterr().out) == {"console": address}


@pytest.mark.parametrize(("opens", "status"), [(True, 0), (False, 1)])
def test_option_opens_the_browser_or_says_that_there_is_none(config, capsys, monkeypatch, opens, status):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or opens)
    assert main(["console", "--open", "--config", config("")]) == status
    assert opened == ["http://127.0.0.1:8080/console"]
    assert ("no browser" in capsys.readouterr().err) == (not opens)
