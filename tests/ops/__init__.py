"""The tests of the settings and of the command line, typed as a user types it."""
