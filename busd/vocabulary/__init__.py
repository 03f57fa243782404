"""Payloads: how message types are defined, and the types of the Bub protocol."""
