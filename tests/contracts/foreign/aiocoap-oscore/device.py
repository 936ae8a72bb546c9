"""A device that speaks OSCORE by aiocoap: gets its options as JSON, and prints what happened as JSON.

It runs in an environment of its own (deploy/setup/setup.sh), because aiocoap's OSCORE needs libraries that Fogline does not.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import aiocoap
from aiocoap.oscore import NotAProtectedMessage

LIMIT_S = 60.0


def shown(response):
    """What the test compares."""
    return {"code": str(response.code), "payload": response.payload.decode(), "query": list(response.opt.location_query)}


async def report(context, base, options):
    """Send events, and return the responses."""
    found = []
    for each in options["events"]:
        message = aiocoap.Message(code=aiocoap.PUT, uri=f"{base}/{each['path']}", payload=each["payload"].encode())
        async with asyncio.timeout(LIMIT_S):
            try:
                found.append(shown(await context.request(message).response))
            except NotAProtectedMessage as error:  # the gateway cannot seal an error for a key that it does not know
                found.append(shown(error.plain_message))
    return found


async def observe(context, base, options):
    """Observe commands, answer each one, and return them."""
    message = aiocoap.Message(code=aiocoap.GET, uri=f"{base}/command//{options['device']}", observe=0)
    asked = context.request(message)
    found = []
    async with asyncio.timeout(LIMIT_S):
        found.append(shown(await asked.response))
        print("observing", file=sys.stderr, flush=True)
        async for notification in asked.observation:
            found.append(shown(notification))
            path = "/".join(notification.opt.location_path)
            answer = aiocoap.Message(code=aiocoap.PUT, uri=f"{base}/{path}?hono-cmd-status=200", payload=b"done")
            found.append(shown(await context.request(answer).response))
            if len(found) > 2 * options["commands"]:
                return found
    return found


async def main(options):
    """Do what the options say."""
    base = f"coap://{options['host']}:{options['port']}"
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.get("folder", temporary)  # aiocoap keeps its sequence number there
        Path(folder).mkdir(exist_ok=True)
        (Path(folder) / "settings.json").write_text(json.dumps(options["key"]))
        context = await aiocoap.Context.create_client_context()
        context.client_credentials.load_from_dict({f"{base}/*": {"oscore": {"basedir": folder}}})
        try:
            work = observe if options.get("commands") else report
            return await work(context, base, options)
        finally:
            await context.shutdown()


print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
