"""How the flow parses, from its settings."""

from fogline_cloud.flows.bodies.body_folder import bodies_in
from fogline_cloud.flows.deployed.loaded_parsers import DeployedParsers
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.deployed.parser_set import ParserSet
from fogline_cloud.flows.driver.ble_keys_file import load_keys
from fogline_cloud.flows.parsers import checked_overrides, installed
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.worker.parse import Plan
from fogline_cloud.flows.worker.parser_choice import checked_rules
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of


def plan_of(settings: CloudSettings) -> Plan:
    """Return the plan, with the parsers that are deployed now.

    Raises `Misconfigured` for a parser that is neither installed nor deployed, and for a file of keys that is wrong;
    `Unreachable` if the tables' store is away.
    """
    flow = settings.flow
    log = ParserLog(settings)
    newest = log.newest()
    storage = storage_of(settings)
    deployed = DeployedParsers(ParserSet() if newest is None else newest.set, TableFolder(log.place, storage))
    return Plan(
        tenant=settings.tenant,
        limit_s=flow.parse_limit_ms / 1000,
        parsers=checked_overrides(flow.parsers, deployed.set.parsers),
        rules=checked_rules(flow.parser_rules, {*installed(), *deployed.set.parsers}),
        keys=load_keys(flow.ble_keys),
        memory_bytes=flow.parse_memory_mib << 20,
        max_readings=flow.max_readings,
        deployed=deployed,
        bodies=bodies_in(flow.tables, storage),
    )
