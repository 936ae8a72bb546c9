"""One budget for the unfinished input of all peers: who loses if there is not enough, and that the sum holds."""

import random

import pytest

from fogline.transport.byte_budget import ByteBudget

BUDGET = 1000


class Peer:
    def __init__(self, budget, address, name=None):
        self.gave_up = 0
        self.account = budget.open(address, self.give_up)
        if name is not None:
            self.account.admit(name)

    def give_up(self):
        self.gave_up += 1
        assert self.account.held_bytes == 0


def test_a_stranger_beyond_the_share_of_strangers_loses_its_largest_account():
    budget = ByteBudget(BUDGET)
    small, large, other = Peer(budget, "a"), Peer(budget, "a"), Peer(budget, "b")
    assert small.account.hold(50)
    assert large.account.hold(150)
    assert other.account.hold(100)
    assert [each.gave_up for each in (small, large, other)] == [0, 1, 0]
    assert budget.held_bytes == 150
    assert budget.given_up == 1


def test_largest_request_is_refused_and_does_not_count():
    budget = ByteBudget(BUDGET)
    first, second = Peer(budget, "a"), Peer(budget, "b")
    assert first.account.hold(100)
    assert not second.account.hold(200)
    assert (first.gave_up, second.gave_up) == (0, 0)
    assert budget.held_bytes == 100


def test_of_equal_accounts_the_newest_gives_up():
    budget = ByteBudget(BUDGET)
    peers = [Peer(budget, "a") for _ in range(5)]
    assert all(each.account.hold(50) for each in peers)
    assert Peer(budget, "b").account.hold(50)
    assert [each.gave_up for each in peers] == [0, 0, 0, 0, 1]


def test_a_client_with_many_connections_loses_before_one_with_few_large_packets():
    budget = ByteBudget(BUDGET)
    many = [Peer(budget, "a", "many") for _ in range(70)]
    for each in many:
        assert each.account.hold(10)
    few = Peer(budget, "a", "few")
    assert few.account.hold(300)
    assert few.gave_up == 0
    assert sum(each.gave_up for each in many) == 25


@pytest.mark.parametrize("name", [None, "user"], ids=["strangers", "users"])
def test_strangers_and_users_do_not_push_each_other_out(name):
    budget = ByteBudget(BUDGET)
    good = Peer(budget, "a", None if name else "good")
    assert good.account.hold(100)
    for _ in range(200):
        Peer(budget, "b", name).account.hold(90)
    assert good.gave_up == 0
    assert good.account.held_bytes == 100
    assert budget.held_bytes <= BUDGET


def test_after_the_login_bytes_count_for_the_name():
    budget = ByteBudget(BUDGET)
    peer, stranger = Peer(budget, "a"), Peer(budget, "a")
    assert peer.account.hold(200)
    peer.account.admit("alice")
    assert stranger.account.hold(200)
    assert (peer.gave_up, stranger.gave_up, budget.held_bytes) == (0, 0, 400)


def test_an_account_that_is_closed_counts_nothing():
    budget = ByteBudget(BUDGET)
    peer = Peer(budget, "a")
    peer.account.hold(200)
    peer.account.close()
    peer.account.close()
    assert budget.held_bytes == 0


def test_sum_of_bytes_is_bounded_for_any_behaviour_of_peers():
    """10,000 random steps of 40 peers, compared with a sum that is made anew each time."""
    chance, budget = random.Random(7), ByteBudget(BUDGET)
    peers = [Peer(budget, f"{number % 5}", f"user {number % 3}" if number % 2 else None) for number in range(40)]
    for _ in range(10_000):
        peer = chance.choice(peers)
        if chance.random() < 0.1:
            peer.account.hold(0)
        elif not peer.account.hold(chance.randrange(1, 200)):
            assert peer.account.held_bytes == 0
        assert budget.held_bytes == sum(each.account.held_bytes for each in peers) <= BUDGET
