"""A command that the program of `fork_server` runs; `forked.write_command` completes it.

It imports the least that it can: its start is what a command of an example costs.
"""

import json
import os
import signal
import socket
import struct
import sys


def main(address: str, module: str) -> None:
    """Has a module run with the streams of this process, and ends as it does."""
    request = {
        "arguments": ["-m", module, *sys.argv[1:]],
        "environment": dict(os.environ),
        "directory": os.getcwd(),
    }
    told, its = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.connect(address)
        socket.send_fds(asked, [json.dumps(request).encode()], [0, 1, 2, its])
    os.close(its)
    (process,) = struct.unpack("=i", os.read(told, 4))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(process, number))
    for stream in (0, 1, 2):
        os.close(stream)  # a reader of its output waits for the end of all that have it
    (status,) = struct.unpack("=i", os.read(told, 4))
    os._exit(status if status >= 0 else 128 - status)
