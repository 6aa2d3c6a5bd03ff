"""Token ids that spell out a finding are masked, whatever the tokenizer."""

from hypothesis import given
from hypothesis import strategies as st

from afterbay.streams.pii.tokens import MASK_ID, MaskedIds, mask_ids


@st.composite
def tokenised(draw: st.DrawFn) -> tuple[int, list[int], list[tuple[int, int]]]:
    """Length of a text, ends of its tokens, stretches cut from it."""
    length = draw(st.integers(1, 40))
    ends = [*sorted(draw(st.lists(st.integers(0, length), max_size=20))), length]
    places = draw(st.lists(st.integers(0, length), max_size=6, unique=True).map(sorted))
    return length, ends, list(zip(places[::2], places[1::2], strict=False))


@given(tokenised())
def test_no_kept_id_covers_a_character_that_was_cut(
    case: tuple[int, list[int], list[tuple[int, int]]],
) -> None:
    length, ends, cuts = case
    masked = mask_ids(list(range(len(ends))), ends, length, cuts)
    cut = {at for start, end in cuts for at in range(start, end)}
    for token, end in enumerate(ends):
        start = ends[token - 1] if token else 0
        if masked.ids[token] != MASK_ID:
            assert not cut & set(range(start, end))
        elif start < end:
            assert cut & set(range(start, end))


@given(tokenised())
def test_runs_are_exactly_the_masked_ids(
    case: tuple[int, list[int], list[tuple[int, int]]],
) -> None:
    length, ends, cuts = case
    masked = mask_ids(list(range(len(ends))), ends, length, cuts)
    inside = [at for start, end in masked.runs for at in range(start, end)]
    assert inside == [at for at, token in enumerate(masked.ids) if token == MASK_ID]
    assert all(a[1] < b[0] for a, b in zip(masked.runs, masked.runs[1:], strict=False))


def test_text_without_findings_keeps_all_ids() -> None:
    assert mask_ids([1, 2], [3, 5], 5, []) == MaskedIds((1, 2), ())


def test_half_a_character_beside_a_finding_is_masked_too() -> None:
    # a byte-level token that ends inside a character has no length in code points
    assert mask_ids([1, 2, 3, 4], [2, 2, 4, 5], 5, [(2, 4)]).ids == (1, MASK_ID, MASK_ID, 4)
    assert mask_ids([1, 2, 3, 4], [2, 4, 4, 5], 5, [(2, 4)]).ids == (1, MASK_ID, MASK_ID, 4)


def test_ends_that_cannot_be_trusted_mask_everything() -> None:
    for ends in (None, [3], [3, 2], [3, 9], []):
        assert mask_ids([1, 2], ends, 5, [(0, 1)]).ids == (MASK_ID, MASK_ID)
