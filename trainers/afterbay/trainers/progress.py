"""What one training run hands to the next beside the weights: a file in the snapshot's folder.

In:   `Progress` after a run; a snapshot folder
Out:  trainer.safetensors; `Progress` again, fresh for a snapshot without one (a warm start)
Refuses: a file that is no progress, with BadState
Never: is read by a node; nothing in it changes what the policy answers

It travels with the snapshot, so that a run is defined by slice, parent and seed alone, wherever it
runs, and so that a candidate which is rolled back takes its optimizer state with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from afterbay.schemas.errors import BadState

PROGRESS_FILE = "trainer.safetensors"
_UPDATES = "updates"
_REWARD_MEAN = "reward_mean"
_MOMENT = "adamw."


@dataclass(slots=True)
class Progress:
    """Where a lineage of training runs stands. Kept beside the weights, read by the next run."""

    updates: int = 0
    """Updates since the warm start."""
    reward_mean: float | None = None
    """Moving mean of the rewards trained on; None before the first update."""
    moments: dict[str, Tensor] = field(default_factory=dict)
    """AdamW's state by `<parameter>.<name>`; empty before the first update."""


def save_progress(folder: Path, progress: Progress) -> None:
    """Write trainer.safetensors into `folder`."""
    tensors = {_MOMENT + name: value.contiguous() for name, value in progress.moments.items()}
    tensors[_UPDATES] = torch.tensor(progress.updates, dtype=torch.int64)
    if progress.reward_mean is not None:
        tensors[_REWARD_MEAN] = torch.tensor(progress.reward_mean, dtype=torch.float64)
    save_file(tensors, folder / PROGRESS_FILE)


def load_progress(folder: Path) -> Progress:
    """The progress in `folder`; fresh if it has none."""
    path = folder / PROGRESS_FILE
    if not path.exists():
        return Progress()
    try:
        tensors = load_file(path)
        return Progress(
            updates=int(tensors[_UPDATES]),
            reward_mean=float(tensors[_REWARD_MEAN]) if _REWARD_MEAN in tensors else None,
            moments={
                name.removeprefix(_MOMENT): value
                for name, value in tensors.items()
                if name.startswith(_MOMENT)
            },
        )
    except (OSError, SafetensorError, KeyError) as error:
        raise BadState(
            f"snapshot folder {folder.name}: {PROGRESS_FILE} cannot be read"
            f" ({type(error).__name__}); restore it, or train from another parent"
        ) from error
