"""SQL over the tables: DuckDB on Arrow datasets of pinned versions.

In:   a lake
Out:  a connection in which every table is a relation, and `experience_current` a view
Never: writes, reads files named in a query, or fetches an extension
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from afterbay.lakehouse import tables
from afterbay.lakehouse.experience import CURRENT_SQL
from afterbay.lakehouse.files import whole
from afterbay.lakehouse.lake import Lake

CURRENT_VIEW = "experience_current"
_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
}


def connect(lake: Lake, versions: Mapping[str, int] | None = None) -> duckdb.DuckDBPyConnection:
    """A connection over every table, each pinned at its newest version or at the one given."""
    connection = duckdb.connect(":memory:", config=_OFFLINE)
    for name in tables.NAMES:
        handle = tables.open(lake, name, (versions or {}).get(name))
        connection.register(name, whole(lake, name, handle))
    # a temporary view: DuckDB lets no lasting one refer to a registered dataset
    connection.execute(f"CREATE TEMP VIEW {CURRENT_VIEW} AS {CURRENT_SQL}")
    return connection
