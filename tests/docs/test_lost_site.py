"""docs/lost-site.md has the settings of the mirror with which the drills run."""

from fogline_lab.kafka_mirror import PROPERTIES
from rules.source import ROOT


def test_the_page_has_the_settings_of_the_mirror_in_the_drills():
    page = (ROOT / "docs" / "lost-site.md").read_text("utf-8")
    assert PROPERTIES.format(old="kafka.old.example:9092", new="kafka.new.example:9092") in page
