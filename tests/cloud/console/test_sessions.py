"""Sessions of the operator's page: bounded in number and time, and nobody is pushed out by another user's."""

import pytest

from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.api.logins import User
from fogline_cloud.console.sessions import IDLE_S, LIFE_S, MAX_OF_USER, MAX_SESSIONS, ConsoleSessions


def user(name: str) -> User:
    return User(Principal(PrincipalKind.CLIENT, "t", name, "password"), None)


@pytest.fixture
def sessions():
    return ConsoleSessions()


def test_session_is_found_by_its_cookie_until_it_is_closed(sessions):
    cookie = sessions.open(user("alice"), "Basic x", 0.0)
    assert sessions.find(cookie, 1.0).user == user("alice")
    assert sessions.find(cookie + "x", 1.0) is None
    sessions.close(cookie)
    assert sessions.find(cookie, 1.0) is None


def test_cookie_and_form_token_differ_from_each_other_and_with_each_login(sessions):
    cookies = [sessions.open(user("alice"), "Basic x", 0.0) for _ in range(3)]
    tokens = [sessions.find(each, 0.0).csrf for each in cookies]
    assert len({*cookies, *tokens}) == 6


def test_session_ends_without_requests_and_in_any_case_after_half_a_day(sessions):
    cookie = sessions.open(user("alice"), "Basic x", 0.0)
    assert sessions.find(cookie, IDLE_S) is not None
    assert sessions.find(cookie, 2 * IDLE_S + 1) is None
    cookie, now_s = sessions.open(user("alice"), "Basic x", 0.0), 0.0
    while now_s + IDLE_S <= LIFE_S:
        now_s += IDLE_S
        assert sessions.find(cookie, now_s) is not None
    assert sessions.find(cookie, LIFE_S + 1) is None
    assert len(sessions) == 0


def test_oldest_session_of_a_user_makes_room_for_the_newest(sessions):
    other = sessions.open(user("bob"), "Basic y", 0.0)
    cookies = [sessions.open(user("alice"), "Basic x", float(n)) for n in range(MAX_OF_USER + 1)]
    now_s = float(MAX_OF_USER)
    assert sessions.find(cookies[0], now_s) is None
    assert all(sessions.find(each, now_s) for each in [*cookies[1:], other])


def test_session_that_was_used_last_longest_ago_makes_room_when_all_are_taken(sessions):
    cookies = [sessions.open(user(f"u{n}"), "Basic x", 0.0) for n in range(MAX_SESSIONS)]
    assert sessions.find(cookies[0], 1.0) is not None
    sessions.open(user("late"), "Basic x", 2.0)
    assert len(sessions) == MAX_SESSIONS
    assert sessions.find(cookies[0], 3.0) is not None
    assert sessions.find(cookies[1], 3.0) is None
