from collections.abc import Callable

from fogline.events.event import Event
from fogline_cloud.flows.sandbox.overruns import LEAST_SHARE, OVERRUNS_OF_DEVICE, OVERRUNS_OF_TYPE, OverrunBudget

MakeEvent = Callable[..., Event]


def test_the_limit_shrinks_for_a_content_type_whose_devices_overrun(make_event: MakeEvent) -> None:
    budget = OverrunBudget()
    shares = []
    for number in range(100 * OVERRUNS_OF_TYPE):
        event = make_event(device=f"d{number}")
        shares.append(budget.share("p", event))
        budget.overran("p", event, shares[-1])
    assert shares[:OVERRUNS_OF_TYPE] == [1.0] * OVERRUNS_OF_TYPE
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] >= LEAST_SHARE
    assert sum(shares) < 6 * OVERRUNS_OF_TYPE
    assert budget.share("p", make_event(content_type="text/plain")) == 1.0
    assert budget.share("q", make_event()) == 1.0


def test_a_few_overruns_among_many_calls_do_not_shrink_the_limit(make_event: MakeEvent) -> None:
    budget = OverrunBudget()
    for number in range(2 * OVERRUNS_OF_TYPE):
        assert budget.share("p", make_event(device=f"d{number}")) == 1.0
        budget.overran("p", make_event(device=f"d{number}"), 1.0)
        for _ in range(100):
            budget.share("p", make_event())


def test_a_device_is_not_asked_after_it_used_up_its_time_and_others_are(make_event: MakeEvent) -> None:
    budget = OverrunBudget()
    for _ in range(2 * OVERRUNS_OF_DEVICE):
        assert budget.share("p", make_event(device="bad"))
        budget.overran("p", make_event(device="bad"), 0.5)
    assert budget.share("p", make_event(device="bad")) == 0
    assert budget.share("p", make_event(device="good")) == 1.0
    assert budget.share("q", make_event(device="bad")) == 1.0
