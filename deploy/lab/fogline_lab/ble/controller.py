"""bumble's controllers and link layer, with the fixes that a central under test needs (bumble 0.0.236)."""

import asyncio
import random
from typing import Any

from bumble import hci, ll
from bumble.controller import Connection, Controller, LegacyAdvertiser
from bumble.core import PhysicalTransport
from bumble.link import LocalLink

_ADV_IND, _ADV_SCAN_IND = 0, 2
SUPERVISION_S = 0.5
Report = hci.HCI_LE_Advertising_Report_Event


class Air(LocalLink):
    """The medium that all controllers share.

    bumble labels LE data with the sender's present random address. BlueZ connects with its public address and changes the
    random one at every scan, so bumble would lose its data. In bumble, a connection that only one end knows of lasts for ever.
    Here that end loses it (Core Specification, Vol 6, Part B, section 4.5.2: supervision timeout).
    """

    def send_acl_data(
        self, sender_controller: Controller, destination_address: hci.Address, transport: PhysicalTransport, data: bytes
    ) -> None:
        """Send data under the address that the connection was made with."""
        if transport != PhysicalTransport.LE:
            return
        connection = sender_controller.le_connections.get(destination_address)
        destination = self.find_le_controller(destination_address)
        if connection is None:
            return
        loop = asyncio.get_running_loop()
        if destination is not None:
            loop.call_soon(destination.on_link_acl_data, connection.self_address, transport, data)
        if destination is None or connection.self_address not in destination.le_connections:
            loop.call_later(SUPERVISION_S, self._supervise, sender_controller, connection)

    def _supervise(self, sender: Controller, connection: Connection) -> None:
        """End a connection that the other end does not know."""
        other = self.find_le_controller(connection.peer_address)
        alive = other is not None and connection.self_address in other.le_connections
        if not alive and sender.le_connections.get(connection.peer_address) is connection:
            sender.on_le_disconnected(connection, hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR)


class Advertiser(LegacyAdvertiser):
    """Advertises in every mode, with scan response data. bumble's advertises in connectable mode only."""

    def send_advertising_data(self) -> None:
        """Send one advertisement."""
        if self.enabled and isinstance(self.controller, RadioController):
            pdu: Any = ll.AdvInd(advertiser_address=self.address, data=self.advertising_data)
            pdu.kind = int(self.advertising_type)
            pdu.scan_response = self.scan_response_data
            pdu.rssi = self.controller.rssi + random.randint(-6, 6)
            self.controller.send_advertising_pdu(pdu)


class RadioController(Controller):
    """A controller with faults. `rssi`: its signal strength at all receivers, in dBm. `silent`: it is out of reach.

    `numb`: it accepts connections, but discards all data, so no ATT request is answered. `aloof`: it advertises, but ignores
    connection requests.
    """

    def __init__(self, name: str, link: LocalLink) -> None:
        super().__init__(name, link=link)
        # bumble sends LE Connection Complete; Linux wants the enhanced one where these two are offered (google/bumble#841)
        self.le_features &= ~(hci.LeFeatureMask.LL_PRIVACY | hci.LeFeatureMask.LE_EXTENDED_ADVERTISING)
        self.silent = False
        self.numb = False
        self.aloof = False
        self.rssi = -60
        self.le_legacy_advertiser = Advertiser(self)

    def on_hci_le_create_connection_cancel_command(
        self,
        command: Any,  # noqa: ARG002 - bumble's signature
    ) -> Any:
        """Cancel the connection attempt; bumble does nothing."""
        pending, self.pending_le_connection = self.pending_le_connection, None
        if pending is None:
            return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.COMMAND_DISALLOWED_ERROR)
        event = hci.HCI_LE_Connection_Complete_Event(
            status=hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR,
            connection_handle=0,
            role=hci.Role.CENTRAL,
            peer_address_type=pending.peer_address_type,
            peer_address=pending.peer_address,
            connection_interval=0,
            peripheral_latency=0,
            supervision_timeout=0,
            central_clock_accuracy=0,
        )
        asyncio.get_running_loop().call_soon(self.send_hci_packet, event)
        return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.SUCCESS)

    def on_advertising_pdu(self, pdu: Any) -> None:
        """Report the advertisement, and its scan response if the scan is active."""
        kind = getattr(pdu, "kind", _ADV_IND)
        if self.le_scan_enable:
            reports = [(Report.EventType(kind), pdu.data)]
            if self.le_scan_type == 1 and kind in (_ADV_IND, _ADV_SCAN_IND) and getattr(pdu, "scan_response", None):
                reports.append((Report.EventType.SCAN_RSP, pdu.scan_response))
            for event_type, data in reports:
                self._report(event_type, data, pdu)
        pending = self.pending_le_connection
        wanted = pending and kind == _ADV_IND and pending.peer_address == pdu.advertiser_address
        if (
            wanted
            and self.link is not None
            and not getattr(self.link.find_le_controller(pdu.advertiser_address), "aloof", False)
        ):
            self.create_le_connection(pdu.advertiser_address)

    def _report(self, event_type: Any, data: bytes, pdu: Any) -> None:
        address = pdu.advertiser_address
        report = Report.Report(
            event_type=event_type,
            address_type=address.address_type,
            address=address,
            data=data,
            rssi=getattr(pdu, "rssi", self.rssi),
        )
        self.send_hci_packet(Report([report]))

    def on_ll_advertising_pdu(self, packet: Any) -> None:
        """Receive, unless it is out of reach."""
        if not self.silent:
            super().on_ll_advertising_pdu(packet)

    def send_advertising_pdu(self, packet: Any) -> None:
        """Send, unless it is out of reach."""
        if not self.silent:
            super().send_advertising_pdu(packet)

    def on_link_acl_data(self, sender_address: hci.Address, transport: PhysicalTransport, data: bytes) -> None:
        """Receive data, unless it is out of reach or numb."""
        if not self.silent and not self.numb:
            super().on_link_acl_data(sender_address, transport, data)

    def lose_radio(self) -> None:
        """Go out of reach: both ends lose every connection, as on a supervision timeout."""
        self.silent = True
        timeout = hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR
        for connection in list(self.le_connections.values()):
            other = self.link.find_le_controller(connection.peer_address) if self.link is not None else None
            self.on_le_disconnected(connection, timeout)
            for their in list(other.le_connections.values()) if other is not None else ():
                if other is not None and their.peer_address == connection.self_address:
                    other.on_le_disconnected(their, timeout)
