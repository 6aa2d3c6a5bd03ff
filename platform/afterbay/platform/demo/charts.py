"""The plots of the report, as SVG images.

In:   a `Recording`
Out:  bytes of an SVG file each
Never: opens a window or touches matplotlib's global state
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from afterbay.platform.demo.recording import Recording, RewardPoint
from afterbay.platform.demo.summary import percentile

BIN_S = 5.0
POINT_S = 10.0
SNAPSHOT_COLOURS = ("#6b7280", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, distinct for colour-blind readers; the warm start is grey."""
RANGE_COLOURS = {"low": "#d55e00", "mid": "#e6c229", "high": "#009e73"}
_SHADE = "#0072b2"
_INK = "#1f2937"


def reward_over_time(recording: Recording) -> bytes:
    """Mean reward of each snapshot's answers, with the moments of promotion."""
    figure, axes = _figure(4.2)
    colour_of = colours(recording)
    for snapshot_id, colour in colour_of.items():
        points = [p for p in recording.rewards if p.snapshot_id == snapshot_id]
        name = names(recording)[snapshot_id]
        axes.plot([p.at_s for p in points], [p.mean for p in points], color=colour, lw=1, alpha=0.5)
        _dots(axes, points, colour, name)
    for step in recording.steps:
        if step.action == "promoted" and step.at_s > 0:
            axes.axvline(step.at_s, color=colour_of.get(step.snapshot_id, _INK), lw=1, ls="--")
    axes.set(ylabel="mean reward", xlabel="seconds of play")
    _through_the_play(axes, recording)
    _legend(axes)
    return _svg(figure)


def _dots(axes: Axes, points: Sequence[RewardPoint], colour: str, name: str) -> None:
    sizes = [6 + p.n / 3 for p in points]
    axes.scatter([p.at_s for p in points], [p.mean for p in points], sizes, colour, label=name)


def colours(recording: Recording) -> dict[str, str]:
    """Colour of each snapshot, in the order of their first answers."""
    order = dict.fromkeys(p.snapshot_id for p in recording.rewards)
    return {s: SNAPSHOT_COLOURS[i % len(SNAPSHOT_COLOURS)] for i, s in enumerate(order)}


def names(recording: Recording) -> dict[str, str]:
    """What to call each snapshot: the warm start, or the number of its training."""
    number = {t.snapshot_id: f"training {i}" for i, t in enumerate(recording.trainings, 1)}
    known = dict.fromkeys(
        [p.snapshot_id for p in recording.rewards] + [s.snapshot_id for s in recording.steps]
    )
    return {snapshot_id: number.get(snapshot_id, "warm start") for snapshot_id in known}


def latency_over_time(recording: Recording) -> bytes:
    """Every answer's latency, its percentiles, and the time a trainer ran, shaded."""
    figure, axes = _figure(3.8)
    at = [a.due_s for a in recording.answered]
    axes.scatter(at, [a.latency_ms for a in recording.answered], 2, "#9ca3af", rasterized=True)
    bins: dict[int, list[float]] = defaultdict(list)
    for answer in recording.answered:
        bins[int(answer.due_s / BIN_S)].append(answer.latency_ms)
    middles = [(b + 0.5) * BIN_S for b in sorted(bins)]
    for share, colour, name in ((0.5, "#0072b2", "p50"), (0.99, "#d55e00", "p99")):
        line = [percentile(bins[b], share) or 0.0 for b in sorted(bins)]
        axes.plot(middles, line, color=colour, lw=1.6, label=f"{name} of {BIN_S:g} s")
    for i, training in enumerate(recording.trainings):
        label = "a trainer runs" if i == 0 else None
        span = training.span
        axes.axvspan(span.start_s, span.end_s, color=_SHADE, alpha=0.15, lw=0, label=label)
    axes.set(yscale="log", ylabel="ms from due time", xlabel="seconds of play")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    _through_the_play(axes, recording)
    _legend(axes)
    return _svg(figure)


def training_figures(recording: Recording) -> bytes:
    """KL from the behaviour policies, and effective sample size, of each training."""
    figure = Figure(figsize=(9.6, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    numbers = [str(i) for i in range(1, len(recording.trainings) + 1)]
    metrics = [training.metrics for training in recording.trainings]
    kl = [m.get("kl_per_token_nats", 0.0) for m in metrics]
    ess = [m.get("ess", 0.0) for m in metrics]
    _bars(left, numbers, kl, "KL from behaviour, nats per token", "{:.3f}")
    _bars(right, numbers, ess, "effective sample size, answers", "{:.0f}")
    return _svg(figure)


def _bars(axes: Axes, names: Sequence[str], values: Sequence[float], what: str, form: str) -> None:
    bars = axes.bar(names, values, color=_SHADE, width=0.6)
    axes.bar_label(bars, [form.format(value) for value in values], fontsize=9, padding=2)
    axes.margins(y=0.18)
    axes.set(title=what, xlabel="training")
    axes.title.set(fontsize=10, color=_INK)
    _plain(axes)


def reward_ranges(recording: Recording) -> bytes:
    """Share of each reward range among the experiences of each stretch of time."""
    figure, axes = _figure(3.0)
    times = sorted({p.at_s for p in recording.ranges})
    count = {(p.at_s, p.reward_range): p.n for p in recording.ranges}
    totals = {t: sum(count.get((t, name), 0) for name in RANGE_COLOURS) for t in times}
    bottom = [0.0] * len(times)
    for name, colour in RANGE_COLOURS.items():
        shares = [100 * count.get((t, name), 0) / totals[t] for t in times]
        axes.bar(times, shares, 9.2, bottom, color=colour, label=name)
        bottom = [low + share for low, share in zip(bottom, shares, strict=True)]
    axes.set(ylim=(0, 100), ylabel="% of experiences", xlabel="seconds of play")
    _through_the_play(axes, recording)
    _legend(axes, reverse=True)
    return _svg(figure)


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9.6, height), layout="constrained")
    axes = figure.subplots()
    _plain(axes)
    return figure, axes


def _through_the_play(axes: Axes, recording: Recording) -> None:
    """The same stretch of time in every plot, so that they can be read one below the other."""
    axes.set_xlim(0, max((a.due_s for a in recording.answered), default=1.0) + POINT_S / 2)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=_INK)


def _legend(axes: Axes, *, reverse: bool = False) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(1, 1),
            frameon=False,
            fontsize=9,
            reverse=reverse,
        )


def _svg(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", dpi=150, metadata={"Date": None})
    return out.getvalue()
