"""Mailboxes that survive a restart: the engines behind `busd.bus.mail_store`."""
