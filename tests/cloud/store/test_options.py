"""`[store]` in the settings: the same store for delta-rs, Spark and the store's own client; no secret on a command line."""

from pathlib import Path

import pytest

from fogline.errors import Misconfigured
from fogline_cloud.flows.driver.session import configuration
from fogline_cloud.settings import CloudSettings, FlowSettings, StoreSettings, load
from fogline_cloud.store.key_file import StoreKeys, read_keys
from fogline_cloud.store.options import delta_options, hadoop_secrets, spark_options, storage_of

KEYS = StoreKeys("AKIA1", "hidden", "session")
PATIENCE = {"timeout": "30s", "max_retries": "5", "retry_timeout": "30s"}
ALWAYS = {
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
    "spark.hadoop.fs.s3a.retry.limit": "2",
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.connection.timeout": "20s",
}
OWN = StoreSettings(endpoint="http://store.example:9000")


def write(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_store_of_ones_own_has_the_same_address_and_form_for_both_clients():
    assert delta_options(OWN, KEYS) == {
        **PATIENCE,
        "aws_endpoint": "http://store.example:9000",
        "aws_region": "us-east-1",
        "aws_virtual_hosted_style_request": "false",
        "aws_allow_http": "true",
        "aws_conditional_put": "etag",
        "aws_access_key_id": "AKIA1",
        "aws_secret_access_key": "hidden",
        "aws_session_token": "session",
    }
    assert spark_options(OWN) == {
        **ALWAYS,
        "spark.hadoop.fs.s3a.endpoint": "http://store.example:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }


def test_amazon_s3_needs_no_settings_but_may_have_a_region():
    assert delta_options(StoreSettings(), None) == {
        **PATIENCE,
        "aws_conditional_put": "etag",
        "aws_virtual_hosted_style_request": "true",
    }
    assert spark_options(StoreSettings(region="eu-north-1")) == {
        **ALWAYS,
        "spark.hadoop.fs.s3a.endpoint.region": "eu-north-1",
        "spark.hadoop.fs.s3a.path.style.access": "false",
    }


def test_secrets_are_not_among_the_options_of_spark_which_its_command_line_shows(folder, monkeypatch):
    jars = folder / "jars"
    for name in ("spark", "s3"):
        (jars / name).mkdir(parents=True)
        (jars / name / "some.jar").touch()
    monkeypatch.setenv("FOGLINE_JARS", str(jars))
    keys = write(folder / "keys", "[default]\naws_access_key_id = AKIA1\naws_secret_access_key = hidden\n")
    settings = CloudSettings(tenant="t", flow=FlowSettings(tables="s3a://b/t"), store=StoreSettings(key_file=keys))
    options = configuration(settings)
    assert not [key for key, value in options.items() if "hidden" in value or "AKIA1" in value]
    assert options["spark.delta.logStore.s3a.impl"] == options["spark.delta.logStore.s3.impl"] == "fogline.PutIfAbsentLogStore"
    assert str(jars / "s3" / "some.jar") in options["spark.driver.extraClassPath"]
    assert hadoop_secrets(read_keys(keys)) == {"fs.s3a.access.key": "AKIA1", "fs.s3a.secret.key": "hidden"}
    assert "hidden" not in repr(read_keys(keys))


def test_a_session_for_tables_in_folders_needs_no_jars_of_the_store(folder, monkeypatch):
    (folder / "spark").mkdir()
    (folder / "spark" / "some.jar").touch()
    monkeypatch.setenv("FOGLINE_JARS", str(folder))
    options = configuration(CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder))))
    assert not [key for key in options if "fs.s3a" in key]
    with pytest.raises(Misconfigured, match=r"setup.sh s3, install the package fogline-flow-s3"):
        configuration(CloudSettings(tenant="t", flow=FlowSettings(tables="s3a://b/t")))


@pytest.mark.parametrize("url", ["s3://bucket/fogline", "s3a://bucket/fogline"])
def test_a_url_of_s3_has_one_form_within_fogline(folder, url):
    file = folder / "cloud.toml"
    file.write_text(f'tenant = "t"\n[flow]\ntables = "{url}"\n')
    assert load(file, kafka=False).flow.tables == "s3a://bucket/fogline"


@pytest.mark.parametrize("url", ["gs://bucket/x", "abfss://c@a.dfs.core.windows.net/x", "s3://", "hdfs://h/x"])
def test_a_url_that_is_not_of_s3_is_refused_with_the_right_form(folder, url):
    file = folder / "cloud.toml"
    file.write_text(f'tenant = "t"\n[flow]\ncheckpoint = "{url}"\n')
    with pytest.raises(Misconfigured, match=r"\[flow\] checkpoint = .*: expected a folder, or a URL such as s3://"):
        load(file, kafka=False)


def test_a_credential_of_systemd_comes_before_the_key_file(folder, monkeypatch):
    file = folder / "cloud.toml"
    file.write_text('tenant = "t"\n[store]\nkey_file = "store-keys"\n')
    assert load(file, kafka=False).store.key_file == str(folder / "store-keys")
    (folder / "given").mkdir()
    (folder / "given" / "store-keys").touch()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder / "given"))
    assert load(file, kafka=False).store.key_file == str(folder / "given" / "store-keys")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[default]\naws_access_key_id = a\n", "aws_secret_access_key is missing"),
        ("[other]\naws_access_key_id = a\naws_secret_access_key = b\n", "aws_access_key_id is missing"),
        ("aws_secret_access_key = hidden\n", "not of AWS's form"),
        ("[default]\naws_access_key_id\nhidden", "not of AWS's form"),
    ],
)
def test_a_key_file_without_keys_is_refused_without_showing_a_secret(folder, text, why):
    with pytest.raises(Misconfigured, match=rf"\[store\] key_file = .*: .*{why}") as found:
        read_keys(write(folder / "keys", text))
    assert "hidden" not in str(found.value)


def test_a_key_file_that_everybody_may_read_is_refused(folder):
    with pytest.raises(Misconfigured, match=r"\[store\] key_file: everybody may read .* chmod 600"):
        read_keys(write(folder / "keys", "[default]\n", 0o644))


def test_the_keys_are_read_only_where_the_store_is_used(folder):
    store = StoreSettings(key_file=str(Path(folder, "missing")))
    assert storage_of(CloudSettings(tenant="t", store=store)) == {}
    with pytest.raises(Misconfigured, match=r"\[store\] key_file: cannot read"):
        storage_of(CloudSettings(tenant="t", store=store, flow=FlowSettings(tables="s3a://b/t")))
