"""A task that Spark tries again: a parser may have ended its worker."""

import msgspec
from pyspark import TaskContext

from fogline_cloud.flows.worker.parse import Plan


def with_children(plan: Plan) -> Plan:
    """Return the plan of this attempt of a task: every parser runs in a child process if a former attempt failed."""
    context = TaskContext.get()
    if context is None or not context.attemptNumber():
        return plan
    return msgspec.structs.replace(plan, in_child=plan.deployed.names())
