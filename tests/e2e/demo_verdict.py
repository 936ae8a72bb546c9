"""A judgement of the demo."""

from collections import Counter

from demo.judgement import Judgement, RunEvidence, judge

LAMP = [("lamp-01", 1), ("lamp-01", 2), ("lamp-02", 1)]
SENT = {"lamp-01": 2, "lamp-02": 1}


def verdict(acknowledged=LAMP, kafka=LAMP, table=LAMP) -> Judgement:
    return judge(RunEvidence(set(acknowledged), SENT, Counter(kafka), Counter(table)))
