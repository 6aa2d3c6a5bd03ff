"""Read the tables with Polars: any Delta reader will do, nothing of afterbay is needed.

python examples/read_experience.py .afterbay
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl


def newest(home: Path) -> pl.DataFrame:
    """Each experience once, with its newest reward.

    A corrected reward is a new row, perhaps in another range, so resolve first and filter then.
    """
    rows = pl.scan_delta(str(home / "lake" / "experience")).select(
        "inference_id", "arm", "reward_range", "reward", "generation", "feedback_count",
        "reward_offset",
    )  # fmt: skip
    order = ["generation", "feedback_count", "reward_offset"]
    return rows.sort(order).unique("inference_id", keep="last").collect()


if __name__ == "__main__":
    experience = newest(Path(sys.argv[1] if len(sys.argv) > 1 else ".afterbay"))
    by_arm = experience.group_by("arm", "reward_range").agg(pl.len(), pl.col("reward").mean())
    print(by_arm.sort("arm", "reward_range"))
