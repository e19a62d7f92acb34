"""Ports for servers that will be stopped and started again on the same one.

They are drawn from below the range that the kernel gives to outgoing connections: a client that keeps
knocking at a closed port of that range can end up connected to itself, and the server never gets it back.
"""

import random
import socket

LOWEST, HIGHEST = 15_000, 30_000
_DRAW = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Draw `count` different ports of 127.0.0.1 that nothing listens on now."""
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            _try_to_hold(_DRAW.randrange(LOWEST, HIGHEST), held)
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _try_to_hold(port: int, held: list[socket.socket]) -> None:
    one = socket.socket()
    try:
        one.bind(("127.0.0.1", port))
    except OSError:
        one.close()
    else:
        held.append(one)


def is_open(port: int) -> bool:
    """Say whether something accepts connections on 127.0.0.1:`port`."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0
