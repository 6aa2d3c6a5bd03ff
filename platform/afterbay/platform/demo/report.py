"""The report: one HTML file that needs nothing else.

In:   a `Recording`, what is wrong with it
Out:  `report.html`: figures, plots, where each event went
Never: holds a message, a planted value or an address of the machine
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from afterbay.platform.demo import charts
from afterbay.platform.demo.recording import Recording
from afterbay.platform.demo.summary import page, summarise

_TOPIC_WORDS = {
    "inference.completed.v2": "answers given to customers",
    "feedback.received.v2": "opinions of rules, models and people",
    "reward.assigned.v2": "rewards made of opinions; corrected ones again",
    "policy.snapshot.v2": "snapshots published, in canary, promoted, rolled back",
    "policy.loaded.v2": "snapshots loaded by nodes",
    "policy.ageing.v2": "decisions of the ageing detector",
    "experience.dropped.v2": "experiences that trainers refused",
    "subject.erasure.v2": "erasures",
    "audit.access.v2": "accesses to personal data",
    "audit.root.v2": "signed tree heads",
    "deadletter.v2": "events that could not be redacted, sealed whole",
}


def write_report(path: Path, recording: Recording, wrong: Sequence[str]) -> None:
    """Write the report of one run."""
    path.write_text(render(recording, wrong), "utf-8")


def render(recording: Recording, wrong: Sequence[str]) -> str:
    """The report as HTML."""
    style = files("afterbay.platform.demo").joinpath("report.css").read_text("utf-8")
    body = [_head(recording, wrong), _tiles(recording)]
    body += [_plot(*one) for one in _plots(recording)]
    body += [_events(recording), _trainings(recording), _steps(recording), _leaks(recording)]
    body.append(_section("All figures", "", _table(("what", "figures"), page(recording))))
    body.append(_section("Where the time went", "", _stages(recording)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>afterbay demo</title><style>{style}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _head(recording: Recording, wrong: Sequence[str]) -> str:
    verdict = (
        '<span class="verdict bad">not ok</span>'
        if wrong
        else '<span class="verdict good">ok</span>'
    )
    control = (
        " Control run: opinions were shuffled, the gate was off." if recording.shuffled else ""
    )
    problems = "".join(f'<p class="bad-text">{escape(text)}</p>' for text in wrong)
    return (
        f"<h1>afterbay demo {verdict}</h1>"
        f'<p class="soft">{escape(recording.source)}, seed {recording.seed}, '
        f"started {escape(recording.started_at)}.{control}</p>{problems}"
    )


def _tiles(recording: Recording) -> str:
    figures = summarise(recording)
    reward, ms = figures["heldout_reward"], figures["latency_ms"]
    gain = None if reward["after"] is None else reward["after"] - reward["before"]
    tiles = [
        ("held-out reward", "–" if gain is None else f"{gain:+.3f}", _from_to(reward)),
        ("messages", f"{recording.sent:,}", f"{recording.rate:g} a second"),
        ("lost / doubled", f"{figures['lost']} / {figures['doubled']}", "events, as sets of ids"),
        ("latency p99", _ms(ms["p99"]), f"{_ms(ms['p99_while_training'])} while training"),
        (
            "trainings",
            str(len(recording.trainings)),
            f"{figures['snapshots']['promoted']} snapshots promoted",
        ),
        (
            "personal data in clear",
            str(recording.leak.found),
            f"of {recording.leak.planted} planted values",
        ),
    ]
    shown = "".join(
        f'<div class="tile"><span class="soft">{escape(name)}</span><b>{escape(value)}</b>'
        f'<span class="soft">{escape(note)}</span></div>'
        for name, value, note in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _from_to(pair: dict[str, float | None]) -> str:
    before, after = pair["before"], pair["after"]
    return "not measured" if before is None or after is None else f"{before:.3f} → {after:.3f}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def _plots(recording: Recording) -> Iterable[tuple[str, str, bytes]]:
    yield (
        "Reward over time, by snapshot",
        "Mean reward of the answers given in ten seconds, by the snapshot that gave them; bigger "
        "dots are more answers. A dashed line is a promotion, in the colour of the snapshot.",
        charts.reward_over_time(recording),
    )
    yield (
        "Latency",
        "Each grey dot is one answer, measured from the time it was due, so waiting counts. "
        f"The player itself was late by {recording.late_ms_p99:.1f} ms at p99, which is in it.",
        charts.latency_over_time(recording),
    )
    yield (
        "Trainings",
        "How far each new policy moved from the policies that gave the answers, and how many "
        "answers' worth of evidence the importance weights leave.",
        charts.training_figures(recording),
    )
    yield (
        "Reward ranges",
        "Experiences by the range of their newest reward, by the time of the answer.",
        charts.reward_ranges(recording),
    )


def _plot(title: str, words: str, svg: bytes) -> str:
    source = "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
    return _section(title, words, f'<img alt="{escape(title)}" src="{source}">')


def _events(recording: Recording) -> str:
    most = max((count.sent for count in recording.events.values()), default=0) or 1
    rows = []
    for name, count in recording.events.items():
        lost = count.sent - count.found
        mark = f'<span class="bad-text">{lost:,}</span>' if lost else "0"
        width = 100 * count.found / most
        rows.append(
            f"<tr><td><code>{name}</code><br><span class='soft'>{_TOPIC_WORDS.get(name, '')}</span>"
            f"</td><td class='n'>{count.sent:,}</td><td class='n'>{count.found:,}</td>"
            f"<td class='n'>{mark}</td><td class='bar'><span style='width:{width:.1f}%'></span>"
            "</td></tr>"
        )
    head = "<tr><th>topic</th><th class='n'>sent</th><th class='n'>in its table</th>"
    head += "<th class='n'>lost</th><th></th></tr>"
    words = (
        "Answers and opinions: the ids that HTTP accepted, looked up in the tables. Other topics: "
        "what the archive holds of all runs of this home, against the topic's table. Rows of "
        f"experience: {recording.tables.get('experience', 0):,}."
    )
    return _section("Where each event went", words, f"<table>{head}{''.join(rows)}</table>")


def _trainings(recording: Recording) -> str:
    names = ("rows", "rewards_new", "updates", "reward_mean", "kl_per_token_nats", "ess")
    rows = [
        (
            str(i),
            f"{training.span.start_s:.0f}–{training.span.end_s:.0f} s",
            *(_figure(training.metrics.get(name)) for name in names),
        )
        for i, training in enumerate(recording.trainings, 1)
    ]
    head = ("#", "when", "rows", "new rewards", "updates", "mean reward", "KL, nats/token", "ESS")
    return _section("Each training", "", _table(head, rows))


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3f}"


def _steps(recording: Recording) -> str:
    names = charts.names(recording)
    rows = [
        (f"{step.at_s:.0f} s", step.action, names.get(step.snapshot_id, ""), step.snapshot_id)
        for step in recording.steps
    ]
    return _section("What happened to snapshots", "", _table(("when", "", "of", "id"), rows))


def _leaks(recording: Recording) -> str:
    leak = recording.leak
    places = [(place, f"{hits:,}") for place, hits in leak.places.items()]
    words = (
        f"{leak.planted} made-up phone numbers, cards, e-mail addresses and resident IDs were in "
        "messages and comments, raw and full-width. They were looked for as written, folded, in "
        f"base64 and as token ids, in {leak.searched_bytes / 2**20:,.0f} MiB."
    )
    return _section("Personal data", words, _table(("place", "hits"), places))


def _stages(recording: Recording) -> str:
    rows = [(name, f"{seconds:.1f} s") for name, seconds in recording.stages.items()]
    return _table(("stage", "time"), [*rows, ("all", f"{recording.total_s:.1f} s")])


def _section(title: str, words: str, content: str) -> str:
    said = f'<p class="soft">{escape(words)}</p>' if words else ""
    return f"<section><h2>{escape(title)}</h2>{said}{content}</section>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table><tr>{top}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
