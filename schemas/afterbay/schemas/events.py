"""Typed carriers: one frozen struct per event, one field per Avro field.

In:   values minted by the producer of each event
Out:  `codec.encode` writes them, `codec.decode` makes them
Never: holds clear personal data; the flusher redacts before it builds one.

Field order and types mirror `avro/<topic>/<newest revision>.avsc`; a test compares the two.
Times are timezone-aware UTC, in microseconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One sealed value found in a text or id field of the event."""

    field: str
    """Name of the event field the value was cut from."""
    ordinal: int
    """Position of the finding among the event's findings; never renumbered."""
    kind: str
    """Kind of personal data, e.g. phone, bank_card; `token_ids` for sealed ids."""
    also: tuple[str, ...] = ()
    """Other kinds the same value is valid as."""
    start: int
    """Start in code points of the redacted text (token index for `token_ids`)."""
    end: int
    """End, exclusive, in the same unit as `start`."""
    key_id: str
    """Data key record that opens `ciphertext`."""
    ciphertext: str
    """Base64 of nonce (12 B) + AES-256-GCM ciphertext + tag."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters the response was sampled with."""

    temperature: float
    """Softmax temperature; 0 means greedy."""
    top_p: float
    """Nucleus mass; 1 means off."""
    top_k: int
    """Number of candidates kept; 0 means off."""
    min_p: float
    """Minimum probability relative to the best; 0 means off."""
    seed: int | None = None
    """The client's seed; null if it gave none."""
    logprobs_mode: str
    """`processed`: log-probs are those of the distribution really sampled from."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A run of response tokens produced by one snapshot."""

    start: int
    """Index of the first response token of the run."""
    snapshot_id: str
    """Snapshot that produced it."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of the response."""

    id: str
    """Tool call id shown to the client."""
    name: str
    """Name of the tool."""
    arguments: str
    """JSON text of the arguments (redacted value by value)."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One addend of a reward."""

    name: str
    """Source of the opinion: person, rule, model or default."""
    value: float
    """Mean score of that source, in [0, 1]."""
    weight: float
    """Weight the function gave it; weights sum to 1."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One named number."""

    name: str
    """Name with its unit."""
    value: float
    """Value."""


class InputOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Next offset to read of one input partition."""

    topic: str
    """Input topic."""
    topic_id: str
    """Kafka's id of that topic."""
    partition: int
    """Partition."""
    next_offset: int
    """First offset not yet reflected in the output."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every carrier; `TOPIC` names the Kafka topic it belongs to."""

    TOPIC: ClassVar[str] = ""


class InferenceCompleted(Event, frozen=True, kw_only=True):
    """One answered request. Made by the flusher from the gateway's ring record."""

    TOPIC: ClassVar[str] = "inference.completed.v2"

    event_id: str
    """UUIDv7 minted at admission; it is the inference_id."""
    request_id: str
    """UUIDv7 of the HTTP request."""
    attempt: int
    """1 for the first node tried."""
    session_id: str
    """Keyed pseudonym of the session."""
    turn: int
    """User messages in the request."""
    subject: str
    """Keyed pseudonym of the person."""
    policy: str
    """Name of the policy that was asked."""
    arm: str
    """`current` or `candidate`."""
    arm_probability: float
    """Probability with which the split gave this arm, in (0, 1]."""
    snapshot_id: str
    """Snapshot that answered."""
    digest: str
    """SHA-256 of the snapshot's weights as the node loaded them."""
    model: str
    """Model name in the client's request."""
    tokenizer: str
    """Fingerprint of the tokenizer."""
    tools: tuple[str, ...] = ()
    """Names of the tools offered, in the request's order; the grammar of the response."""
    prompt: str
    """Prompt text as the policy saw it, redacted."""
    response: str
    """Response text, redacted."""
    prompt_ids: tuple[int, ...] | None = None
    """Prompt token ids; -1 where masked; null if the engine gives none."""
    response_ids: tuple[int, ...] | None = None
    """Response token ids; -1 where masked; null if the engine gives none."""
    response_logprobs: tuple[float, ...] | None = None
    """Natural log-prob under the distribution really sampled from; NaN = not usable."""
    loss_mask: tuple[int, ...] | None = None
    """1 where the response token may be trained on, else 0."""
    trainable: bool
    """False if no trainer may use the row."""
    untrainable_reason: str | None = None
    """Why not, when `trainable` is false."""
    altered: bool
    """True if a token id was masked, so the log-probs no longer belong to these ids."""
    segments: tuple[Segment, ...] = ()
    """Which snapshot produced which response tokens."""
    sampling: Sampling
    """Sampling parameters."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Tool calls of the response."""
    finish_reason: str
    """stop, tool_calls, length or error."""
    dispatched_at: datetime
    """Gateway handed the request to a node."""
    started_at: datetime
    """Node began."""
    first_token_at: datetime | None = None
    """First token sampled; null if there was none."""
    completed_at: datetime
    """Last token sampled."""
    node_id: str
    """Node that answered."""
    pii: tuple[Finding, ...] = ()
    """Sealed values."""


class FeedbackReceived(Event, frozen=True, kw_only=True):
    """One opinion about one inference. Made by the flusher, read by the rewarder."""

    TOPIC: ClassVar[str] = "feedback.received.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    inference_id: str
    """event_id of the inference this is about."""
    caller: str
    """Id of the API key that sent it."""
    source: str
    """person, rule or model."""
    rater: str
    """Keyed pseudonym of who rated."""
    score: float | None = None
    """Opinion in [0, 1]; null if only a label or comment was given."""
    label: str | None = None
    """Label, redacted."""
    comment: str | None = None
    """Comment, redacted."""
    step: int | None = None
    """Index of the response step meant; null for the whole response."""
    given_at: datetime | None = None
    """The client's own time: data, never a partition."""
    idempotency_key: str | None = None
    """Keyed pseudonym of the client's Idempotency-Key."""
    subject: str | None = None
    """Keyed pseudonym of the person, if the caller sent one."""
    pii: tuple[Finding, ...] = ()
    """Sealed values."""


class RewardAssigned(Event, frozen=True, kw_only=True):
    """The number a reward function made of all feedback of an inference. Made by the rewarder."""

    TOPIC: ClassVar[str] = "reward.assigned.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    inference_id: str
    """event_id of the inference this is about."""
    reward: float
    """In [0, 1]."""
    components: tuple[Component, ...] = ()
    """What it was made of."""
    function_id: str
    """Content-made id of the reward function."""
    generation: int
    """Grows when a new function recomputes old rewards."""
    feedback_count: int
    """Distinct feedback folded in."""
    feedback_ids: tuple[str, ...] = ()
    """Their event ids, in offset order."""
    cause: str
    """feedback, late, default or recompute."""


class PolicySnapshot(Event, frozen=True, kw_only=True):
    """What happened to a snapshot. Made by trainers, folded into arm state by the scheduler."""

    TOPIC: ClassVar[str] = "policy.snapshot.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    policy: str
    """Name of the policy."""
    action: str
    """published, canary, promoted, rolled_back or retired."""
    snapshot_id: str
    """Snapshot it is about."""
    parent: str | None = None
    """Snapshot it was trained from; null for a warm start."""
    digest: str
    """SHA-256 (hex) of the weights file."""
    uri: str
    """Where the snapshot's folder lies."""
    manifest: str
    """Signed manifest, canonical JSON text."""
    signature: str
    """Base64 Ed25519 signature of the manifest."""
    split: float | None = None
    """Share of sessions for the candidate, with action canary."""
    trained_on: str | None = None
    """JSON text of the slice; null for a warm start."""
    metrics: tuple[Metric, ...] = ()
    """Numbers of its evaluation."""


class PolicyLoaded(Event, frozen=True, kw_only=True):
    """A node loaded, or failed to load, a snapshot. Made by the node."""

    TOPIC: ClassVar[str] = "policy.loaded.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    node_id: str
    """Node."""
    policy: str
    """Name of the policy."""
    snapshot_id: str
    """Snapshot."""
    digest: str
    """SHA-256 (hex) of the bytes really loaded; empty on error before reading."""
    load_ms: float
    """Milliseconds from reading to ready."""
    error: str | None = None
    """Kind of failure; null if it serves."""


class PolicyAgeing(Event, frozen=True, kw_only=True):
    """A decision of the ageing detector."""

    TOPIC: ClassVar[str] = "policy.ageing.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    policy: str
    """Name of the policy."""
    snapshot_id: str
    """Newest snapshot compared."""
    kl_per_token_nats: float
    """KL divergence from the behaviour policy."""
    estimator: str
    """k3 or full_vocabulary."""
    n: int
    """Tokens in the estimate."""
    ess: float
    """Effective sample size on untruncated weights, in (0, n]."""
    score: float
    """min(1, mean of the last 100 / 0.8)."""
    decision: str
    """none, split or distil."""


class ExperienceDropped(Event, frozen=True, kw_only=True):
    """An experience a trainer refused; final."""

    TOPIC: ClassVar[str] = "experience.dropped.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    inference_id: str
    """event_id of the inference this is about."""
    run_id: str
    """Training run that refused it."""
    stage: str
    """slice, weigh or train."""
    reason: str
    """See topics.py."""
    lag: int | None = None
    """Snapshots published since its oldest token; null if unknown."""


class SubjectErasure(Event, frozen=True, kw_only=True):
    """A step of the erasure of a person."""

    TOPIC: ClassVar[str] = "subject.erasure.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    subject: str
    """Keyed pseudonym of the person."""
    state: str
    """requested, deferred, destroying or confirmed."""
    actor: str
    """Who asked."""
    reason: str
    """Why."""
    keys_destroyed: int | None = None
    """Key records destroyed, with state confirmed."""


class AuditAccess(Event, frozen=True, kw_only=True):
    """Who read or decrypted what, allowed or denied."""

    TOPIC: ClassVar[str] = "audit.access.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    actor: str
    """Who."""
    action: str
    """reveal, query, replay or redrive."""
    target: str
    """Event, table or subject it was about."""
    reason: str
    """Reason given."""
    allowed: bool
    """False for a refused attempt."""


class AuditRoot(Event, frozen=True, kw_only=True):
    """Signed tree head of one partition's archive."""

    TOPIC: ClassVar[str] = "audit.root.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    topic: str
    """Topic the tree is about."""
    topic_id: str
    """Kafka's id of that topic."""
    partition: int
    """Partition."""
    size: int
    """Leaves in the tree."""
    root: str
    """RFC 6962 tree hash, hex."""
    signature: str
    """Base64 Ed25519 signature."""


class DeadLetter(Event, frozen=True, kw_only=True):
    """An event the flusher could not redact, sealed whole."""

    TOPIC: ClassVar[str] = "deadletter.v2"

    event_id: str
    """UUIDv7 of this event, canonical text; never reused."""
    source_topic: str
    """Topic it was meant for."""
    stage: str
    """flusher or sink."""
    reason: str
    """See topics.py."""
    sha256: str
    """Hex hash of the clear record."""
    subject: str | None = None
    """Keyed pseudonym of the person, if known."""
    key_id: str
    """Data key record that opens `sealed`."""
    sealed: str
    """Base64 of nonce + ciphertext + tag."""


class Cursor(Event, frozen=True, kw_only=True):
    """How far a source was produced; written in the same transaction as its events."""

    TOPIC: ClassVar[str] = "cursor.v2"

    source: str
    """Name of the source; also the transactional.id and the Kafka key."""
    ring_id: str | None = None
    """L1 ring read; null if the source is not a ring."""
    sequence: int | None = None
    """Last ring sequence number produced."""
    offsets: tuple[InputOffset, ...] = ()
    """Input positions; empty if the source does not read a log."""
    run_id: str | None = None
    """One-shot run that is done; null otherwise."""


EVENT_TYPES: dict[str, type[Event]] = {
    kind.TOPIC: kind
    for kind in (
        InferenceCompleted,
        FeedbackReceived,
        RewardAssigned,
        PolicySnapshot,
        PolicyLoaded,
        PolicyAgeing,
        ExperienceDropped,
        SubjectErasure,
        AuditAccess,
        AuditRoot,
        DeadLetter,
        Cursor,
    )
}
