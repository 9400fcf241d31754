"""How dates and times are written in the console: as ISO 8601 orders them, to the second, with the zone named."""

DATE_FORMAT = SHORT_DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = "Y-m-d H:i:s e"
FIRST_DAY_OF_WEEK = 1
