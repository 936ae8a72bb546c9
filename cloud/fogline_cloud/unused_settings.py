"""Keys of the cloud side's settings that another key switches off."""

from fogline.process.files.unused_settings import Unused
from fogline.process.files.via_settings import IN_CLEAR_TEXT

UNUSED = (
    *(
        Unused("bridge", key, lambda table: "tls" not in table, "without [bridge.tls] nobody proves a name. Set [bridge.tls]")
        for key in ("users", "crl")
    ),
    Unused(
        "bridge.via",
        "tls",
        lambda table: table["url"].startswith(IN_CLEAR_TEXT),
        "bridge.via.url is without TLS. Write amqps:// or wss://, or remove the table",
    ),
    Unused(
        "commands",
        "key_id",
        lambda table: "signing_key" not in table,
        "commands are not signed. Set commands.signing_key, or remove it",
    ),
    Unused(
        "devices",
        "seen_every_s",
        lambda table: table.get("learn") == "none",
        'devices.learn = "none". Remove one of the two',
    ),
    Unused(
        "sinks.*",
        "hypertable",
        lambda table: not table["url"].startswith("postgresql://"),
        "only PostgreSQL has such tables. Remove it",
    ),
)
"""All such keys."""
