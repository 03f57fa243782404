"""What programs use to be peers of a bus: `Client` for anyio, `SyncClient` for threads."""
