"""busd as something to install, and to examine."""
