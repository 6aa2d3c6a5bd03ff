"""Settings: defaults as documented, refusals that name the variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterbay.platform.settings import Settings
from afterbay.schemas.errors import BadSettings


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    settings = Settings.from_env({})
    assert settings.home.root == Path(".afterbay")
    assert (settings.partitions, settings.flush_s, settings.gateway_port) == (12, 10.0, 8080)
    assert settings.nodes == {}


def test_nodes_are_read_by_name() -> None:
    settings = Settings.from_env({"AFTERBAY_NODES": "node-1=tcp://a:1, node-2=ipc:///x.sock"})
    assert settings.nodes == {"node-1": "tcp://a:1", "node-2": "ipc:///x.sock"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AFTERBAY_PARTITIONS", "0"),
        ("AFTERBAY_PARTITIONS", "four"),
        ("AFTERBAY_FLUSH_S", "nan"),
        ("AFTERBAY_REWARD_WAIT_S", "-1"),
        ("AFTERBAY_GATEWAY_PORT", "70000"),
        ("AFTERBAY_NODES", "node-1"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadSettings, match=name):
        Settings.from_env({name: value})
