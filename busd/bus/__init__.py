"""Addresses, peers, routes and acks; nothing in here knows message types."""
