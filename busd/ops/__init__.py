"""Settings, logs, the command line; puts things together, knows nothing of routing."""
