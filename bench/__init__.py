"""The benchmark: what one acked message costs on busd, a bare relay, NATS and Redis."""
