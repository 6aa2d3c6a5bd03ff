"""The loss: REINFORCE from another policy's responses, weights truncated, with a baseline.

In:   log-probs of responses under the policy that learns; weights and advantages, both constant
Out:  one number to descend, mean over the responses
Never: lets a gradient through weights or advantages; counts a position that is masked
"""

from __future__ import annotations

from torch import Tensor


def truncated_reinforce(
    log_probs: Tensor, mask: Tensor, weights: Tensor, advantages: Tensor
) -> Tensor:
    """-mean over B of weight * advantage * log pi(response).

    `log_probs`, `mask` (B, T); `weights`, `advantages` (B,). A response with weight 0 takes no
    part, even where its log-prob is not finite.
    """
    taking_part = mask & (weights > 0).unsqueeze(1)
    response = log_probs.masked_fill(~taking_part, 0).sum(dim=1)
    return -(weights.detach() * advantages.detach() * response).mean()
