"""The broker killed under running agents: they wait, go on, and each event stays once."""

from __future__ import annotations

from pathlib import Path

from tests.support.agents import Agents, all_in, prove_once
from tests.support.events import Sender, inference, opinion
from tests.support.kafka import fresh_log, own_broker


def test_sink_rewarder_and_bucketer_go_on_after_the_broker_was_killed_and_started_again(
    tmp_path: Path,
) -> None:
    with own_broker(tmp_path / "kafka") as broker:
        agents = Agents(tmp_path / "home", fresh_log(broker.bootstrap))
        sender = Sender(agents.log)
        asked = [inference(n) for n in range(90)]
        wanted: list[str] = []
        with agents.running("sink", "rewarder", "bucketer"):
            for start in (0, 30, 60):
                some = asked[start : start + 30]
                sender.send(*some, *(opinion(event.event_id, 1.0) for event in some))
                wanted += [event.event_id for event in some]
                if start < 60:
                    broker.kill()  # with a flush, a transaction and a join somewhere on their way
                    broker.start()
            all_in(agents, "experience", "inference_id", wanted)
        for table in ("feedback", "reward", "experience"):
            prove_once(agents, table, "inference_id", wanted)
        prove_once(agents, "inference", "event_id", wanted)
