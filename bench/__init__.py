"""The benchmark: what one acked message costs on busd, on a bare relay and on NATS."""
