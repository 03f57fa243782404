"""The tests of the store of the gateway: real files, a real thread, real kills."""
