"""What payloads say: how a message type is named, and the types of the Bub protocol."""
