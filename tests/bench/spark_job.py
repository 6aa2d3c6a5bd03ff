"""The same work in Spark Structured Streaming. Run by `ingest_spark`, in Spark's own environment.

In:   JSON as the only argument: bootstrap, topic, schema (file), table, checkpoint, jars
Out:  a Delta table by date; JSON on the last line of standard output: seconds of the query, rows

Values are masked by `regexp_replace` in three kinds: e-mail, numbers of cards and resident ids,
mobile phones. No check digits, no sealing, no archive, no hash, no fsync.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession  # type: ignore[import-not-found]  # not in our env
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro  # type: ignore[import-not-found]  # as above
from spark_job_patterns import KINDS  # type: ignore[import-not-found]  # beside this script

_HEADER_BYTES = 10


def main(job: dict[str, Any]) -> None:
    """Run the query until everything that is there is in the table."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(job["jars"]))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = _events(spark, job)
    start = time.perf_counter()
    query = (
        rows.writeStream.format("delta")
        .partitionBy("date")
        .option("checkpointLocation", job["checkpoint"])
        .trigger(availableNow=True)
        .start(job["table"])
    )
    query.awaitTermination()
    seconds = time.perf_counter() - start
    count = sum(progress["numInputRows"] for progress in query.recentProgress)
    sys.stdout.write("\n" + json.dumps({"seconds": seconds, "rows": count}) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()  # whoever measures looks at the process once more, then lets it go
    spark.stop()


def _events(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    schema = Path(job["schema"]).read_text("utf-8")
    came = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("subscribe", job["topic"])
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    body = F.expr(f"substring(value, {_HEADER_BYTES + 1}, length(value) - {_HEADER_BYTES})")
    event = from_avro(body, schema, {"mode": "FAILFAST"}).alias("event")
    rows = came.select(event, "partition", "offset", "timestamp").select(
        "event.*", "partition", "offset", "timestamp"
    )
    for name in ("prompt", "response"):
        for pattern, mask in KINDS:
            rows = rows.withColumn(name, F.regexp_replace(name, pattern, mask))
    return rows.withColumn("date", F.date_format("completed_at", "yyyy-MM-dd"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
