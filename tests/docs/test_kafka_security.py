"""The settings in docs/kafka-security.md are settings that both Kafka clients take."""

import re
from pathlib import Path

import pytest

from docs.command_parsers import COMMANDS
from fogline_cloud.flows.driver.spark_kafka_options import spark_options
from fogline_cloud.kafka.connection_settings import MECHANISMS
from fogline_cloud.kafka.rights import KafkaRole
from fogline_cloud.settings import load

PAGE = (Path(__file__).parents[2] / "docs" / "kafka-security.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_there_is_a_block_for_each_way_to_log_in():
    assert len(BLOCKS) == 3
    assert all(each in PAGE for each in MECHANISMS)


def test_the_roles_are_those_of_the_program_and_every_command_that_asks_kafka_has_one():
    roles = dict(re.findall(r"^\| `(\w+)`( \([^)]*\))? \|", PAGE, re.MULTILINE))
    assert set(roles) == {each.value for each in KafkaRole}
    named = set(re.findall(r"`(\w+ \w+)`", "".join(roles.values())))
    assert {"flow status", "flow run", "ledger verify", "audit verify"} <= named
    known = {" ".join(each.prog.split()[1:]) for each in COMMANDS}
    assert named <= known


@pytest.mark.parametrize("block", BLOCKS, ids=["password", "certificate", "token"])
def test_a_block_of_settings_is_translated_for_spark(block, folder):
    for name in re.findall(r'"([\w-]+\.(?:pem|key|password|secret))"', block):
        (folder / name).write_text("-----BEGIN PRIVATE KEY-----")
        (folder / name).chmod(0o600)
    path = folder / "cloud.toml"
    path.write_text(f'tenant = "acme"\n{block}')
    path.chmod(0o644)
    assert spark_options(load(path).kafka)["kafka.security.protocol"] in {"SSL", "SASL_SSL"}
