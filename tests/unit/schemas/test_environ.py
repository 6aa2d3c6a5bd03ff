"""One setting from the environment: its value, its default, or an error that names it."""

from __future__ import annotations

import pytest

from afterbay.schemas import environ
from afterbay.schemas.errors import BadSettings


def test_a_value_in_range_is_read() -> None:
    assert environ.number({"A": "0.5"}, "A", 1, 0, 1) == 0.5
    assert environ.whole({"A": "7"}, "A", 1, 0, 9) == 7
    assert environ.switch({"A": "off"}, "A", True) is False


def test_missing_and_empty_mean_the_default() -> None:
    for mapping in ({}, {"A": ""}):
        assert environ.number(mapping, "A", 1.5, 0, 9) == 1.5
        assert environ.whole(mapping, "A", 3, 0, 9) == 3
        assert environ.switch(mapping, "A", True) is True


@pytest.mark.parametrize("text", ["x", "-1", "10", "nan", "inf"])
def test_a_number_out_of_range_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadSettings, match=r"A is .* expected a number from 0 to 9"):
        environ.number({"A": text}, "A", 1, 0, 9)


def test_a_fraction_where_a_whole_number_belongs_is_refused() -> None:
    with pytest.raises(BadSettings, match="whole"):
        environ.whole({"A": "1.5"}, "A", 1, 0, 9)


def test_a_switch_is_on_or_off() -> None:
    with pytest.raises(BadSettings, match="`on` or `off`"):
        environ.switch({"A": "yes"}, "A", True)
