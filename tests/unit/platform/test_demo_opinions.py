"""Judges: people err one time in ten, models check each other, shuffled scores say nothing."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from afterbay.platform.demo import corpus
from afterbay.platform.demo.classifier import Classifier, characters, words
from afterbay.platform.demo.messages import Message
from afterbay.platform.demo.opinions import Judges, KeywordRule, Opinion, Shuffler

MESSAGES = corpus.make(1, 3_000)
LABELLED, PLAYED = MESSAGES[:200], MESSAGES[200:]


@pytest.fixture(scope="module")
def judges() -> Judges:
    return Judges(PLAYED, LABELLED, seed=1)


def _of(judges: Judges, source: str, right: bool) -> list[Opinion]:
    tools = [m.tool if right else "no_such_tool" for m in PLAYED]
    return [
        o for i, tool in enumerate(tools) for o in judges.opinions(i, 0, tool) if o.source == source
    ]


@pytest.mark.parametrize("right", [True, False])
def test_one_person_in_ten_says_the_opposite_of_what_is_true(judges: Judges, right: bool) -> None:
    wrong = sum(o.score != float(right) for o in _of(judges, "person", right))
    assert 0.08 < wrong / len(PLAYED) < 0.12


def test_people_are_late_and_come_out_of_order(judges: Judges) -> None:
    delays = [o.delay_s for o in _of(judges, "person", True)]
    assert min(delays) >= 1.5
    assert max(delays) <= 12
    assert sum(later < sooner for sooner, later in pairwise(delays)) > 500


def test_rules_speak_at_once_and_only_when_they_know(judges: Judges) -> None:
    opinions = _of(judges, "rule", True)
    assert 200 < len(opinions) < len(PLAYED)
    assert all(o.delay_s == 0 and o.score is not None for o in opinions)


def test_an_answer_without_a_tool_is_wrong_to_the_rule_and_to_most_people(judges: Judges) -> None:
    opinions = [o for i in range(200) for o in judges.opinions(i, 0, None)]
    assert {o.score for o in opinions if o.source == "rule"} == {0.0}
    assert sum(o.score == 0 for o in opinions if o.source == "person") > 160


def test_models_score_where_they_agree_and_say_so_where_not(judges: Judges) -> None:
    opinions = _of(judges, "model", True)
    by_label = Counter(o.label for o in opinions)
    assert len(opinions) == 2 * len(PLAYED)
    assert all((o.score is None) == (o.label == "disputed") for o in opinions)
    assert by_label["right"] > 2 * by_label["wrong"] > 0
    assert by_label["disputed"] > 0


def test_the_same_seed_gives_the_same_opinions_and_a_second_playing_other_ones(
    judges: Judges,
) -> None:
    again = Judges(PLAYED, LABELLED, seed=1)
    tool = PLAYED[0].tool
    assert again.opinions(0, 0, tool) == judges.opinions(0, 0, tool)
    assert again.opinions(0, 1, tool) != judges.opinions(0, 0, tool)


def test_a_person_who_names_a_value_in_a_comment_says_which(judges: Judges) -> None:
    commented = [o for o in _of(judges, "person", True) if o.planted]
    assert commented
    assert all(o.planted[0].written in (o.comment or "") for o in commented)


def test_a_shuffled_score_says_nothing_about_the_answer_it_is_sent_for() -> None:
    shuffler, size = Shuffler(seed=1), 4_000
    meant = [float(i % 3 == 0) for i in range(size)]
    sent = [shuffler.swap(Opinion("person", "p", score, "", 1.0)).score for score in meant]
    for truth in (0.0, 1.0):
        scores = [s for s, m in zip(sent, meant, strict=True) if m == truth and s is not None]
        assert sum(scores) / len(scores) == pytest.approx(1 / 3, abs=0.05)


def test_shuffling_keeps_each_kind_of_judge_apart() -> None:
    shuffler = Shuffler(seed=1, size=4)
    for _ in range(50):
        shuffler.swap(Opinion("model", "words", None, "disputed", 1.0))
        person = shuffler.swap(Opinion("person", "p", 1.0, "right", 1.0))
        assert person.score is not None


def test_a_keyword_rule_is_silent_where_words_disagree() -> None:
    labelled = [Message(t, "", tool) for t, tool in (("card lost", "a"), ("rate now", "b"))] * 2
    rule = KeywordRule(labelled)
    assert rule.tool_for("my card") == "a"
    assert rule.tool_for("card rate") is None
    assert rule.tool_for("hello") is None


@pytest.mark.parametrize("cut", [words, characters])
def test_a_classifier_learns_its_labels_and_more(cut: object) -> None:
    assert callable(cut)
    model = Classifier([m.text for m in LABELLED], [m.tool for m in LABELLED], cut)
    known = model.predict([m.text for m in LABELLED])
    unseen = model.predict([m.text for m in PLAYED])
    assert sum(p == m.tool for p, m in zip(known, LABELLED, strict=True)) > 180
    assert sum(p == m.tool for p, m in zip(unseen, PLAYED, strict=True)) > 0.5 * len(PLAYED)
