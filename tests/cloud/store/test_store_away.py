"""Ledger, maintenance and the list of dead events while the object store is away: one sentence, and the status of Kafka's."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fogline_cloud.cli.main import main
from fogline_lab.http_line import HttpLine
from fogline_lab.object_store import BUCKET


@pytest.mark.fault("K24")
@pytest.mark.parametrize("command", [["table", "maintain"], ["dead", "list"], ["flow", "status"], ["ledger", "verify"]])
def test_a_command_says_in_one_sentence_that_the_store_is_away(object_store, kafka, folder, tenant, capsys, command):
    url = f"s3://{BUCKET}/{tenant}"
    rows = pa.table({"tenant": [tenant], "day": ["2026-01-01"]})
    write_deltalake(f"{url}/events", rows, partition_by=["day"], storage_options=object_store.options())
    with HttpLine(object_store.port, folder / "line.log") as line:
        config = folder / "cloud.toml"
        config.write_text(
            f'tenant = "{tenant}"\n[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[flow]\ntables = "{url}"\n'
            f'[store]\nendpoint = "{line.endpoint}"\nkey_file = "{object_store.key_file}"\n'
        )
        assert main(["topics", "create", "--replication", "1", "--config", str(config)]) == 0
        with line.away():
            status = main([*command, "--config", str(config)])
    printed = capsys.readouterr()
    assert status
    assert "the object store at" in printed.out + printed.err
    assert "does not answer" in printed.out + printed.err
    assert "Traceback" not in printed.out + printed.err
