"""The gateway end to end: a real bus, real gateway and agents, and the formats' real clients."""
