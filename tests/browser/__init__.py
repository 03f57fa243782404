"""What a browser can send to the port of the bus."""
