"""The catalogue shows every topic and every table, in two pictures."""

from __future__ import annotations

from afterbay.dagster_defs.catalog import external_assets, table_key, topic_key
from afterbay.lakehouse import tables
from afterbay.schemas.topics import TOPICS


def test_every_topic_and_every_table_is_an_asset() -> None:
    keys = {spec.key for spec in external_assets()}
    assert keys == {topic_key(name) for name in TOPICS} | {table_key(n) for n in tables.NAMES}


def test_every_asset_says_what_it_is_and_belongs_to_a_picture() -> None:
    for spec in external_assets():
        assert spec.description
        assert spec.group_name in ("loop", "ledger")
        assert spec.kinds


def test_a_table_is_fed_by_its_topic() -> None:
    feeds = {spec.key: {dep.asset_key for dep in spec.deps} for spec in external_assets()}
    for facts in TOPICS.values():
        if facts.table is not None:
            assert feeds[table_key(facts.table)] == {topic_key(facts.name)}
