"""The types of pyspark that the public face speaks of, for app.py, which must not import pyspark itself."""

import os

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.direct_source import DirectInput
from penstock.spark.outcome_sink import SinkInput
from penstock.spark.sinks import Outcomes

Source = DataFrame | DirectInput
Output = str | os.PathLike[str] | SinkInput

__all__ = ["DataFrame", "Outcomes", "Output", "Source", "StreamingQuery"]
