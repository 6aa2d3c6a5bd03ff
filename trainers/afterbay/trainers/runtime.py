"""How torch runs in a process of ours, set by its entry point and never at import.

In:   the environment (AFTERBAY_TORCH_THREADS)
Out:  one thread, and kernels that give the same bits each time
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from afterbay.schemas.environ import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSettings:
    """Settings of one process."""

    threads: int = 1
    """Threads of one operation; more than 1 takes cores from serving."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> TorchSettings:
        """Settings in the environment; BadSettings naming the variable."""
        return cls(threads=whole(environ, "AFTERBAY_TORCH_THREADS", 1, 1, 1024))


def set_up_torch(settings: TorchSettings) -> None:
    """Apply the settings to this process; call once, at its start."""
    torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(True)
