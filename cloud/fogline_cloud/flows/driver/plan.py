"""How the flow parses, from its settings."""

from fogline_cloud.flows.driver.ble_keys_file import load_keys
from fogline_cloud.flows.parsers import checked_overrides, installed
from fogline_cloud.flows.worker.parse import Plan
from fogline_cloud.flows.worker.parser_choice import checked_rules
from fogline_cloud.settings import CloudSettings


def plan_of(settings: CloudSettings) -> Plan:
    """Return the plan. Raises `Misconfigured` for a parser that is not installed, and for a file of keys that is wrong."""
    flow = settings.flow
    return Plan(
        tenant=settings.tenant,
        limit_s=flow.parse_limit_ms / 1000,
        parsers=checked_overrides(flow.parsers),
        rules=checked_rules(flow.parser_rules, installed()),
        keys=load_keys(flow.ble_keys),
        memory_bytes=flow.parse_memory_mib << 20,
        max_readings=flow.max_readings,
    )
