"""JSON-RPC 2.0: envelopes, methods and pending calls; nothing in here knows peers or addresses."""
