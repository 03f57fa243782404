"""The plugin API, and the host that runs plugins."""
