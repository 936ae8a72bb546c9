"""Addresses of databases."""

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.settings import load
from fogline_cloud.sinks.place import Kind, place_of


def test_paths_are_relative_to_the_settings_file_or_absolute(folder):
    config = folder / "cloud.toml"
    config.write_text(
        'tenant = "t"\n[sinks.a]\nurl = "duckdb:///below/x.duckdb"\n[sinks.b]\nurl = "sqlite:////var/x.db"\n'
        '[sinks.c]\nurl = "postgresql://fog@db/lab"\npassword_file = "p"\n'
    )
    sinks = load(config, kafka=False).sinks
    assert place_of(sinks["a"].url).address == str(folder / "below" / "x.duckdb")
    assert place_of(sinks["b"].url).address == "/var/x.db"
    assert (sinks["c"].url, sinks["c"].password_file) == ("postgresql://fog@db/lab", str(folder / "p"))


def test_the_password_is_in_the_address_and_not_in_what_is_shown():
    place = place_of("postgresql://fog@db.example:5433/lab?sslmode=require", "a/b@c:d %")
    assert place.kind is Kind.POSTGRESQL
    assert place.address.startswith("postgresql://fog:a%2Fb%40c%3Ad%20%25@db.example:5433/lab?sslmode=require")
    assert place.shown == "fog@db.example:5433/lab"


def test_a_silent_server_is_noticed_unless_the_url_says_otherwise():
    assert "connect_timeout=10" in place_of("postgresql://fog@db/lab").address
    assert place_of("postgresql://fog@db/lab?connect_timeout=3").address.count("connect_timeout") == 1


@pytest.mark.parametrize(
    ("url", "password", "words"),
    [
        ("mysql://x/y", None, "expected postgresql://user@host/database, duckdb:///file or sqlite:///file"),
        ("readings.duckdb", None, "expected postgresql"),
        ("duckdb://readings.duckdb", None, "expected duckdb:///file"),
        ("sqlite:///", None, "expected sqlite:///file"),
        ("sqlite:///x", "p", "a file of SQLite has no password"),
        ("postgresql://fog:secret@db/lab", None, "the password belongs in password_file"),
        ("postgresql://fog@db/lab?password=secret", None, "the password belongs in password_file"),
        ("postgresql://db/lab", "p", "password_file needs a user"),
    ],
)
def test_a_wrong_url_is_one_sentence(url, password, words):
    with pytest.raises(Misconfigured) as error:
        place_of(url, password)
    assert words in str(error.value)
    assert "secret" not in str(error.value)
