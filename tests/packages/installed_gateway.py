"""The gateway that a package installed in a container."""

import json
import re

EVENTS = 10_000
HEALED_S = 60
PUBLISH = """
import sys, time
import paho.mqtt.client as mqtt
first, count = int(sys.argv[1]), int(sys.argv[2])
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="lamp-1")
client.max_inflight_messages_set(200)
client.connect("127.0.0.1", 1883)
client.loop_start()
sent = [client.publish("telemetry", '{"n": %d}' % n, qos=1) for n in range(first, first + count)]
for each in sent:
    each.wait_for_publish(60)
print(sum(each.is_published() for each in sent))
"""


def publish(machine, first, count):
    """Publish events; return how many were acknowledged."""
    return int(machine.python(PUBLISH, str(first), str(count)).strip())


def stored(machine):
    """Return the numbers of the events in the outbox."""
    rows = json.loads(machine.run(f"runuser -u fogline -- fogline-edge outbox --json --limit {10 * EVENTS}"))
    return sorted(int(n) for n in re.findall(r'\\{1,2}"n\\{1,2}": (\d+)', json.dumps(rows)))


def main_pid(machine):
    return int(machine.run("systemctl show -P MainPID fogline-edge"))


def active(machine):
    return machine.run("systemctl is-active fogline-edge", status=None).strip() == "active"
