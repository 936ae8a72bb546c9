"""A revocation reaches the bridges that do not share a folder with the authority, over Kafka."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from fogline.process.files.tls_files import ReadAgain
from fogline_cloud.authority.ca_folder import LIST, ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_cloud.authority.revocation import read_revocation_list
from fogline_cloud.bridge.door.revocation_feed import RevocationFeed
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.line.line import Line
from fogline_lab.waiting import until_not


class Bridge:
    """The feed of a bridge with a list of its own."""

    def __init__(self, line: Line, site: AuthorityFolder, path: Path) -> None:
        self.path, ca = path, str(site.ca.path / ROOT)
        if not path.exists():
            shutil.copy(site.ca.path / LIST, path)
        self.file = ReadAgain(partial(read_revocation_list, str(path), ca), [str(path)])
        self.feed = RevocationFeed(KafkaClients(line.cloud.kafka), line.tenant, self.file, str(path), ca)

    def knows(self, serial: int) -> bool:
        (found,) = self.file.get().lists.values()
        return found.get_revoked_certificate_by_serial_number(serial) is not None


@pytest.fixture
def site(line, folder) -> AuthorityFolder:
    return AuthorityFolder(folder, line.tenant)


@pytest.fixture
def bridges(line, site, folder):
    """One bridge beside the authority, and two elsewhere."""
    paths = (site.ca.path / LIST, folder / "crl-2.pem", folder / "crl-3.pem")
    made = [Bridge(line, site, each) for each in paths]
    yield made
    for each in made:
        each.feed.close()


def revoked(site: AuthorityFolder, name: str) -> int:
    site.files(Role.GATEWAY, name)
    (known,) = site.ca.revoke(name, now_utc(), 1)
    return int(known.issued.serial, 16)


async def all_know(bridges: list[Bridge], serial: int) -> None:
    async def not_yet() -> bool:
        for each in bridges:
            each.feed.exchange()
        return not all(each.knows(serial) for each in bridges)

    await until_not(not_yet, "the revocation does not come")


@pytest.mark.fault("S1")
async def test_every_bridge_gets_the_newest_list(site, bridges):
    for name in ("gw-1", "gw-2"):
        await all_know(bridges, revoked(site, name))
    assert len({each.path.read_bytes() for each in bridges}) == 1


async def test_a_forged_list_and_an_older_one_change_nothing(line, site, bridges, folder):
    old = (site.ca.path / LIST).read_bytes()
    serial = revoked(site, "gw-1")
    await all_know(bridges, serial)
    other = CaFolder.make(folder / "other", line.tenant, now_utc(), 1)
    for _ in range(9):
        other.write_list(now_utc(), 1)
    producer = KafkaClients(line.cloud.kafka).publisher(lambda *_: None, 10)
    for text in ((folder / "other" / LIST).read_bytes(), old, b"no list", b""):
        producer.produce(topics.crl(line.tenant), text, b"crl", partition=0)
    assert producer.flush(60) == 0
    await all_know(bridges, serial)
    await all_know(bridges, revoked(site, "gw-2"))
    assert len({each.path.read_bytes() for each in bridges}) == 1
