"""The activity log: an SQLite file of finished deliveries, how it is written and how it is read."""
