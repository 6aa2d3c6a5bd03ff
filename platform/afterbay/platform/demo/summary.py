"""The figures of one run, and whether it succeeded.

In:   a `Recording`
Out:  the content of `summary.json`; what is wrong, a line each; a page for the terminal
Never: measures; counts alone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from afterbay.platform.demo.recording import Measured, Recording, Span

MOST_FAILED = 0.01
"""Share of failed requests that a run may have: a node that restarts costs a few."""


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least `share` of all are not above; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summarise(recording: Recording) -> dict[str, Any]:
    """What goes into summary.json."""
    before, after = recording.before, recording.after
    return {
        "messages": recording.sent,
        "events": {
            name: {"sent": c.sent, "found": c.found} for name, c in recording.events.items()
        },
        "lost": lost(recording),
        "doubled": recording.doubled,
        "snapshots": snapshots(recording),
        "trainings": len(recording.trainings),
        "heldout_reward": _pair(before, after, "sampled"),
        "heldout_greedy": _pair(before, after, "greedy"),
        "heldout_messages": before.messages if before else 0,
        "latency_ms": latency(recording),
        "table_lag_s": recording.table_lag_s,
        "pii_in_clear": recording.leak.found,
        "pii_planted": recording.leak.planted,
        "failed": sum(recording.failed.values()) + sum(recording.feedback_failed.values()),
        "proof_ok": recording.proof_ok,
        "seconds": round(recording.total_s, 1),
        "stages": {name: round(s, 1) for name, s in recording.stages.items()},
        "seed": recording.seed,
        "shuffled": recording.shuffled,
        "source": recording.source,
    }


def lost(recording: Recording) -> int:
    """Events that were sent and are in no table."""
    return sum(max(0, count.sent - count.found) for count in recording.events.values())


def snapshots(recording: Recording) -> dict[str, int]:
    """Distinct snapshots of this run by what happened to them."""
    by_action = {
        action: len({s.snapshot_id for s in recording.steps if s.action == action})
        for action in ("published", "promoted", "rolled_back")
    }
    return {**by_action, "loaded": recording.loaded}


def latency(recording: Recording) -> dict[str, float | None]:
    """Percentiles over all answers, and over those that were due while a trainer ran."""
    everything = [a.latency_ms for a in recording.answered]
    spans = [training.span for training in recording.trainings]
    training = [a.latency_ms for a in recording.answered if _within(a.due_s, spans)]
    rest = [a.latency_ms for a in recording.answered if not _within(a.due_s, spans)]
    figures = {
        "p50": percentile(everything, 0.5),
        "p99": percentile(everything, 0.99),
        "p99_while_training": percentile(training, 0.99),
        "p99_otherwise": percentile(rest, 0.99),
    }
    return {name: None if v is None else round(v, 2) for name, v in figures.items()}


def _within(at: float, spans: Sequence[Span]) -> bool:
    return any(span.start_s <= at <= span.end_s for span in spans)


def _pair(before: Measured | None, after: Measured | None, name: str) -> dict[str, float | None]:
    return {
        "before": round(getattr(before, name), 4) if before else None,
        "after": round(getattr(after, name), 4) if after else None,
    }


def problems(recording: Recording, least_trainings: int) -> list[str]:
    """Why this run is no success; empty if it is one."""
    missing = lost(recording)
    failures = sum(recording.failed.values()) + sum(recording.feedback_failed.values())
    found = [
        (missing != 0, f"{missing} events lost"),
        (recording.doubled != 0, f"{recording.doubled} events doubled"),
        (not recording.proof_ok, f"`afterbay prove`: {'; '.join(recording.proof_differences)}"),
        (
            len(recording.trainings) < least_trainings,
            f"{len(recording.trainings)} trainings; expected at least {least_trainings}",
        ),
        (
            recording.leak.found != 0,
            f"{recording.leak.found} planted personal values readable in "
            + ", ".join(place for place, hits in recording.leak.places.items() if hits),
        ),
        (not recording.answered, "no message was answered"),
        (failures > len(recording.answered) * MOST_FAILED, f"{failures} requests failed"),
    ]
    return [text for wrong, text in found if wrong]


def page(recording: Recording) -> list[tuple[str, str]]:
    """(what, figures) for the terminal and the head of the report."""
    figures = summarise(recording)
    ms, reward, greedy = (
        figures["latency_ms"],
        figures["heldout_reward"],
        figures["heldout_greedy"],
    )
    done, kinds = figures["snapshots"], recording.heard
    failed = ", ".join(f"{n} {kind}" for kind, n in recording.failed.items()) or "none"
    return [
        (
            "messages",
            f"{recording.sent:,} sent at {recording.rate:g}/s, {len(recording.answered):,} "
            f"answered; failed: {failed}",
        ),
        (
            "opinions",
            ", ".join(f"{h.sent:,} {kind} (mean {h.mean:.2f})" for kind, h in kinds.items()),
        ),
        ("latency", f"p50 {_ms(ms['p50'])}, p99 {_ms(ms['p99'])}"),
        (
            "p99 while training",
            f"{_ms(ms['p99_while_training'])}, otherwise {_ms(ms['p99_otherwise'])}",
        ),
        (
            "answer to table",
            ", ".join(f"{name} {s:.1f} s" for name, s in recording.table_lag_s.items()),
        ),
        ("lost / doubled", f"{figures['lost']} / {figures['doubled']}"),
        ("prove", "every event once" if recording.proof_ok else "DIFFERENCES"),
        (
            "snapshots",
            f"{len(recording.trainings)} trainings; {done['published']} published, "
            f"{done['loaded']} loaded, {done['promoted']} promoted, "
            f"{done['rolled_back']} rolled back",
        ),
        ("held-out reward", _change(reward)),
        ("held-out greedy", _change(greedy)),
        (
            "personal data",
            f"{recording.leak.found} of {recording.leak.planted} planted values in clear, "
            f"{recording.leak.searched_bytes / 2**20:.0f} MiB searched",
        ),
        ("time", f"{recording.total_s:.0f} s, of it {recording.play_s:.0f} s of play"),
    ]


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} ms"


def _change(pair: dict[str, float | None]) -> str:
    before, after = pair["before"], pair["after"]
    if before is None or after is None:
        return "not measured"
    return f"{before:.3f} -> {after:.3f} ({after - before:+.3f})"
