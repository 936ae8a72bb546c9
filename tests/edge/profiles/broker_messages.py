"""Messages of devices and programs behind brokers, as their documentation and their users' reports show them.

`broker-messages.json` has the address of each. Identifiers of commands and of the gateway are put in.
"""

import json
from pathlib import Path

from fogline_edge.profiles.profile import BrokerMessage

MESSAGES = {
    each["id"]: BrokerMessage(each["topic"], each["payload"].encode())
    for each in json.loads(Path(__file__).with_name("broker-messages.json").read_text())
}
