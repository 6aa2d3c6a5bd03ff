"""Who judges an answer in the demo: a keyword rule, two models, people.

In:   the messages to be played, the labelled ones, the tool an answer called
Out:  `Opinion`s, each with the seconds until it is given
Never: tells a judge the right tool, but for people, of whom one in ten gets it wrong

The models are trained on the same labels and check each other: where they agree on a message
both score the answer, where they do not, both send the label `disputed` and no score.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from afterbay.platform.demo.classifier import Classifier, characters, words
from afterbay.platform.demo.messages import Message
from afterbay.platform.demo.personal import Planted, plant

WRONG_SHARE = 0.1
"""Share of people who say the opposite of what is true."""
PERSON_DELAY_S = (1.5, 12.0)
"""People take a log-normal time with median 4 s, kept within these bounds."""
MODEL_DELAY_S = (0.3, 2.0)
SWAP_POOL = 64
"""Opinions that wait to be handed to another inference when rewards are shuffled."""
_COMMENTED = 0.04
"""Share of people who also write a comment; half of those name a personal value."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """One judgement of one answer. Made here, sent by `feedback.py`."""

    source: str
    """rule, model or person."""
    rater: str
    """Who: `keywords`, `words`, `characters` or `person-<n>`."""
    score: float | None
    """1 for the right tool, 0 for a wrong one; None where the judge will not say."""
    label: str
    """right, wrong or disputed."""
    delay_s: float
    """Seconds from the answer until the opinion is given."""
    comment: str | None = None
    """Free text of a person."""
    planted: tuple[Planted, ...] = ()
    """Personal values in the comment."""


class KeywordRule:
    """Votes by words that stand beside one tool only among the labelled messages."""

    def __init__(self, labelled: Sequence[Message]) -> None:
        tools_of: dict[str, Counter[str]] = defaultdict(Counter)
        for message in labelled:
            for word in set(words(message.text)):
                tools_of[word][message.tool] += 1
        self._tool_of = {
            word: next(iter(tools))
            for word, tools in tools_of.items()
            if len(tools) == 1 and tools.total() >= 2
        }

    def tool_for(self, text: str) -> str | None:
        """The tool all telling words agree on; None if there are none or they differ."""
        tools = {self._tool_of[word] for word in words(text) if word in self._tool_of}
        return tools.pop() if len(tools) == 1 else None


class Judges:
    """All judges of one run; what they think of each message is worked out before the play."""

    def __init__(self, messages: Sequence[Message], labelled: Sequence[Message], seed: int) -> None:
        texts = [message.text for message in messages]
        known, tools = [m.text for m in labelled], [m.tool for m in labelled]
        rule = KeywordRule(labelled)
        self._messages = messages
        self._seed = seed
        self._by_rule = [rule.tool_for(text) for text in texts]
        self._by_words = Classifier(known, tools, words).predict(texts)
        self._by_characters = Classifier(known, tools, characters).predict(texts)

    def opinions(self, index: int, play: int, chosen: str | None) -> list[Opinion]:
        """What every judge says of the tool `chosen` for message `index`, its `play`-th playing."""
        random = Random(f"{self._seed}:{index}:{play}")  # noqa: S311  # repeatable, not secret
        given = [*self._rule(index, chosen), *self._models(random, index, chosen)]
        given.append(self._person(random, index, chosen))
        return given

    def _rule(self, index: int, chosen: str | None) -> list[Opinion]:
        expected = self._by_rule[index]
        if chosen is not None and expected is None:
            return []
        return [_judged("rule", "keywords", chosen is not None and chosen == expected, 0.0)]

    def _models(self, random: Random, index: int, chosen: str | None) -> list[Opinion]:
        by_words, by_characters = self._by_words[index], self._by_characters[index]
        delays = [random.uniform(*MODEL_DELAY_S) for _ in range(2)]
        both = zip(("words", "characters"), delays, strict=True)
        if by_words != by_characters:
            return [Opinion("model", rater, None, "disputed", delay) for rater, delay in both]
        return [_judged("model", rater, chosen == by_words, delay) for rater, delay in both]

    def _person(self, random: Random, index: int, chosen: str | None) -> Opinion:
        true = chosen == self._messages[index].tool
        said = true != (random.random() < WRONG_SHARE)
        low, high = PERSON_DELAY_S
        delay = min(max(4.0 * random.lognormvariate(0, 0.5), low), high)
        opinion = _judged("person", f"person-{random.randrange(200)}", said, delay)
        if random.random() >= _COMMENTED:
            return opinion
        comment = "That helped." if said else "这不是我要的"
        if random.random() < 0.5:
            return replace(opinion, comment=comment)
        value = plant(random)
        return replace(opinion, comment=f"{comment} {value.written}", planted=(value,))


def _judged(source: str, rater: str, right: bool, delay_s: float) -> Opinion:
    return Opinion(source, rater, float(right), "right" if right else "wrong", delay_s)


class Shuffler:
    """Hands each score to another inference, judge by judge, so that nothing can be learned.

    A score goes into its judge's pool and a random older one comes out. Until the pool holds
    `size` scores a coin decides, so no score ever returns to the inference it was made for.
    """

    def __init__(self, seed: int, size: int = SWAP_POOL) -> None:
        self._random = Random(f"shuffle:{seed}")  # noqa: S311  # repeatable, not secret
        self._pools: dict[str, list[float | None]] = defaultdict(list)
        self._size = size

    def swap(self, opinion: Opinion) -> Opinion:
        """`opinion` with the score and label of another one of the same kind of judge."""
        pool = self._pools[opinion.source]
        if len(pool) < self._size:
            score: float | None = float(self._random.random() < 0.5)
            pool.append(opinion.score)
        else:
            at = self._random.randrange(self._size)
            score, pool[at] = pool[at], opinion.score
        label = "disputed" if score is None else "right" if score else "wrong"
        return replace(opinion, score=score, label=label)
