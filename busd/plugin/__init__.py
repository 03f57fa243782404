"""The door for application code: what plugins are made of, and what runs them."""
