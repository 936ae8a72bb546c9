"""Changes of the registry of devices, and the wait until a bridge has read them."""

from e2e.parts import until_not
from fogline.address import DeviceAddress
from fogline.amqp.security import ClientSecurity
from fogline_cloud.devices.client import edit_device


async def edited(line, device: str, action: str, body: bytes = b"", where: str = ""):
    address = DeviceAddress(line.tenant, device)
    return await edit_device(where or f"127.0.0.1:{line.port}", address, action, body, security=ClientSecurity())


async def known(bridge, condition) -> None:
    async def not_yet() -> bool:
        return not condition(bridge._devices.table)

    await until_not(not_yet, "the bridge does not read the change")
