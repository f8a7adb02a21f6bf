"""The sections of the report, one file per section: its picture, its table and its words."""
