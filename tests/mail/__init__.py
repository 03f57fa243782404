"""The tests of the activity log: real files, real threads, real kills."""
