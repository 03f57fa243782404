"""busd as a service, under a real systemd."""
