"""The types of pyspark that the public face speaks of, for app.py, which must not import pyspark itself."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.direct_source import DirectInput
from penstock.spark.start import Outcomes

Source = DataFrame | DirectInput

__all__ = ["DataFrame", "Outcomes", "Source", "StreamingQuery"]
