"""The tests of the gateway."""
