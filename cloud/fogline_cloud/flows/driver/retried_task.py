"""What a Spark task knows about its former attempts."""

import msgspec
from pyspark import TaskContext

from fogline_cloud.flows.worker.parse import Plan


def careful_again(plan: Plan) -> Plan:
    """Return the plan of this attempt of a task. If a former one failed, a parser may have killed its worker."""
    context = TaskContext.get()
    if context is None or not context.attemptNumber():
        return plan
    return msgspec.structs.replace(plan, suspect_all=True)
