"""The types of pyspark that the public face speaks of, for app.py, which must not import pyspark itself."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.files import Files
from penstock.spark.start import Outcomes

Source = DataFrame | Files

__all__ = ["DataFrame", "Outcomes", "Source", "StreamingQuery"]
