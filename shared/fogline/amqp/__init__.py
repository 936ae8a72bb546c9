"""AMQP 1.0 in three layers: `engine` (proton, no sockets), `scheduler` (which lane next; pure), `driver` (asyncio)."""
