"""The part of docs/devices-mqtt.md about TLS."""

import re

from rules.source import ROOT

PAGE = (ROOT / "docs" / "devices-mqtt.md").read_text("utf-8").partition("## TLS\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, text in BLOCKS if not language for line in text.splitlines()]
(PROGRAM,) = (text for language, text in BLOCKS if language == "python")
