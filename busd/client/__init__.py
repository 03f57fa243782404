"""The client library: `Client` for anyio, `SyncClient` for threads."""
