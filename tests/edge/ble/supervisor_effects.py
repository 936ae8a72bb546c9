"""Effects that the supervisor orders together."""

from fogline_edge.adapters.ble.supervision.bluez_state import BluezState
from fogline_edge.adapters.ble.supervision.supervisor import Effect

SCANNING = BluezState(None, ":1.7", "hci0", powered=True)
DROP, RENEW, STALE, START = Effect.DROP_SCANNER, Effect.RENEW, Effect.CLOSE_STALE, Effect.START
NEW_SCANNER, NEW_CLIENTS = [DROP, START], [DROP, RENEW, STALE, START]
POWER_CYCLE = [DROP, RENEW, Effect.POWER_CYCLE, STALE, START]
