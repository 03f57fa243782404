"""Settings: read, checked and assembled."""
