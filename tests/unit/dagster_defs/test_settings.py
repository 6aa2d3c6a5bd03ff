"""Settings of the code location: read once, refused early."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterbay.dagster_defs.settings import Settings
from afterbay.schemas.errors import BadSettings


def test_an_empty_environment_gives_the_promised_defaults() -> None:
    assert Settings.from_env({}) == Settings(home=Path(".afterbay").absolute())


def test_every_setting_is_taken() -> None:
    found = Settings.from_env(
        {
            "AFTERBAY_HOME": "/h",
            "AFTERBAY_BOOTSTRAP": "k:1",
            "AFTERBAY_TOPIC_PREFIX": "x.",
            "AFTERBAY_POLICY": "p",
            "AFTERBAY_TRAIN_EVERY": "7",
            "AFTERBAY_GATE": "off",
            "AFTERBAY_CANARY_SPLIT": "0.25",
            "AFTERBAY_CANARY_REWARDS": "5",
            "AFTERBAY_CANARY_S": "1.5",
        }
    )
    assert found == Settings(
        home=Path("/h"),
        bootstrap="k:1",
        prefix="x.",
        policy="p",
        train_every=7,
        gate=False,
        canary_split=0.25,
        canary_rewards=5,
        canary_s=1.5,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AFTERBAY_TRAIN_EVERY", "0"),
        ("AFTERBAY_TRAIN_EVERY", "many"),
        ("AFTERBAY_GATE", "maybe"),
        ("AFTERBAY_CANARY_SPLIT", "0"),
        ("AFTERBAY_CANARY_SPLIT", "nan"),
        ("AFTERBAY_CANARY_S", "-1"),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: str) -> None:
    with pytest.raises(BadSettings, match=name):
        Settings.from_env({name: value})
