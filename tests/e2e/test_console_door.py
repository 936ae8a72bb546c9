"""The door of the operator's page: who gets in, which forms count, and what a browser is told it may do."""

import asyncio
import re

from e2e.console_client import log_in, origin, token, visitor
from e2e.guarded import guarded
from e2e.http_api import served
from fogline_cloud.console.sessions import MAX_OF_USER
from fogline_lab.credentials.authority_folder import PASSWORD


async def test_the_cookie_goes_over_tls_to_this_site_alone_and_no_script_reads_it(line):
    line, https = guarded(line)
    async with served(line, **https) as (found, *_), visitor(found, verify=https["verify"]) as client:
        entered = await log_in(client, "alice", next="/console/devices?type=lamp")
        assert (entered.status_code, entered.headers["location"]) == (303, "/console/devices?type=lamp")
        (cookie,) = [each for each in entered.headers.get_list("set-cookie") if each.startswith("__Host-fogline=")]
        assert {each.strip() for each in cookie.split(";")[1:]} == {"HttpOnly", "Path=/", "SameSite=strict", "Secure"}
        shown = await client.get("/console/devices")
        assert "alice" in shown.text
        assert shown.headers["cache-control"] == "no-store"
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert re.search(r"<style|style=|<script>|onclick|javascript:|https?://", shown.text) is None


async def test_wrong_password_gets_the_form_again_and_no_session(line):
    line, https = guarded(line)
    async with served(line, **https) as (found, *_), visitor(found, verify=https["verify"]) as client:
        for name, password in (("alice", "wrong"), ("eve", PASSWORD), ("a/b", ""), ("", "")):
            refused = await log_in(client, name, password)
            assert refused.status_code == 401
            assert 'role="alert"' in refused.text
        assert found.api.context.logins.refused >= 1
        assert (await client.get("/console/devices")).status_code == 303


async def test_where_to_go_after_the_log_in_is_a_page_of_ours(line):
    async with served(line) as (found, *_):
        for wanted in ("https://evil.example/", "//evil.example", "/console/\\evil", "/v1/devices", "/console/login?next=/"):
            async with visitor(found) as client:
                entered = await log_in(client, "alice", next=wanted)
                assert (entered.status_code, entered.headers["location"]) == (303, "/console")


async def test_form_counts_only_from_a_page_of_this_site_and_of_this_session(line):
    async with served(line) as (found, *_), visitor(found) as client, visitor(found) as other:
        for each in (client, other):
            assert (await log_in(each, "alice")).status_code == 303
        right = {"csrf": await token(client, "/console/devices")}
        forged = (
            (right, {}),
            (right, {"origin": "https://evil.example"}),
            (right, {"origin": "null"}),
            ({"other": "x"}, origin(client)),
            ({"csrf": ""}, origin(client)),
            ({"csrf": await token(other, "/console/devices")}, origin(client)),
        )
        for fields, headers in forged:
            refused = await client.post("/console/logout", data=fields, headers=headers)
            assert refused.status_code == 403, (fields, headers)
        json = await client.post("/console/logout", json=right, headers=origin(client))
        assert json.status_code == 415
        assert (await client.get("/console/devices")).status_code == 200
        done = await client.post("/console/logout", data=right, headers=origin(client))
        assert (done.status_code, done.headers["location"]) == (303, "/console/login")
        assert (await client.get("/console/devices")).status_code == 303
        assert (await other.get("/console/devices")).status_code == 200


async def test_log_in_from_the_page_of_another_site_is_refused(line):
    async with served(line) as (found, *_), visitor(found) as client:
        fields = {"csrf": await token(client), "name": "alice", "password": ""}
        for headers in ({}, {"origin": "https://evil.example"}):
            assert (await client.post("/console/login", data=fields, headers=headers)).status_code == 403
        assert (await client.post("/console/login", data={**fields, "csrf": "x"}, headers=origin(client))).status_code == 403
        client.cookies.clear()
        assert (await client.post("/console/login", data=fields, headers=origin(client))).status_code == 403


async def test_a_user_has_a_bounded_number_of_sessions(line):
    async with served(line) as (found, *_):
        clients = [visitor(found) for _ in range(MAX_OF_USER + 1)]
        try:
            for each in clients:
                await log_in(each, "alice")
            assert (await clients[0].get("/console/devices")).status_code == 303
            assert (await clients[-1].get("/console/devices")).status_code == 200
        finally:
            await asyncio.gather(*(each.aclose() for each in clients))


async def test_while_no_bridge_answers_a_session_reads_on_but_changes_nothing(line):
    async with served(line) as (found, _, bridge, *_), visitor(found) as client:
        await log_in(client, "alice")
        fields = {"csrf": await token(client, "/console/devices")}
        await bridge.listener.close()
        for session in list(found.api.context.logins._sessions.values()):
            session.close()
        assert (await client.get("/console/devices")).status_code == 200
        assert (await client.post("/console/logout", data=fields, headers=origin(client))).status_code == 503


async def test_what_is_not_there_is_404(line):
    async with served(line) as (found, *_), visitor(found) as client:
        await log_in(client, "alice")
        for path in ("/console/static/x/console.css", "/console/static/0/vendor/../../guard.py", "/console/nothing/<b>"):
            missing = await client.get(path)
            assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
            assert "<b>" not in missing.text
