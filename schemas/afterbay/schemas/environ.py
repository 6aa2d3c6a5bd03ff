"""Read one setting from a mapping of environment variables; settings classes are made of these.

In:   the mapping, a variable's name, its default and range
Out:  the value
Refuses: a value out of its range (BadSettings, naming the variable and what it must be)
Never: reads the process's environment itself
"""

from __future__ import annotations

from collections.abc import Mapping

from afterbay.schemas.errors import BadSettings


def number(environ: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    """A number within [low, high]; `default` if the variable is missing or empty."""
    text = environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise BadSettings(f"{name} is {text!r}; expected a number from {low:g} to {high:g}")
    return value


def whole(environ: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """A whole number within [low, high]; `default` if the variable is missing or empty."""
    value = number(environ, name, default, low, high)
    if value != int(value):
        raise BadSettings(f"{name} is {value}; expected a whole number from {low} to {high}")
    return int(value)


def switch(environ: Mapping[str, str], name: str, default: bool) -> bool:
    """True for `on`, False for `off`; `default` if the variable is missing or empty."""
    text = environ.get(name)
    if not text:
        return default
    if text not in ("on", "off"):
        raise BadSettings(f"{name} is {text!r}; expected `on` or `off`")
    return text == "on"
