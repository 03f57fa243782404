"""The tests of the clients: real daemons, real sockets, both loops."""
