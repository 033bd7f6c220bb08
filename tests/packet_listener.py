"""Run a command where every packet that it sends is seen: ``unshare --net python packet_listener.py FILE COMMAND ...``.

The network namespace gets a tunnel as its only way out, with a default route, and nobody answers there. Packets are
written to FILE as JSON: where each goes. Loopback works, and only questions to a name server are noted there.
"""

import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, SIOCADDRT = 0x8913, 0x8914, 0x8916, 0x890B  # linux/sockios.h
IFF_UP, RTF_UP = 1, 1
NAME_SERVICE = 53


class Listener:
    """Collects the destinations of packets until it is closed."""

    def __init__(self) -> None:
        self.packets: list[str] = []
        self._tunnel = _open_tunnel("tun0")
        self._loopback = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
        self._loopback.bind(("lo", 0))
        self._done, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        os.close(self._stop)
        self._thread.join()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._tunnel, self._loopback, self._done], [], [])
            if self._tunnel in ready:
                self.packets.append(_destination(os.read(self._tunnel, 65536)))
            if self._loopback in ready:
                packet = self._loopback.recv(65536)
                if _destination(packet).endswith(f":{NAME_SERVICE}"):
                    self.packets.append(_destination(packet))
            if ready == [self._done]:
                return


def _open_tunnel(name: str) -> int:
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")  # the kernel itself would send some
    tunnel = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFADDR, struct.pack("16s16s", name.encode(), _address("10.9.8.7")))
        for device in (name, "lo"):
            request = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sH22x", device.encode(), 0))
            (flags,) = struct.unpack_from("H", request, 16)
            fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", device.encode(), flags | IFF_UP))
        everywhere, device_name = _address("0.0.0.0"), name.encode() + b"\0"
        buffer = ctypes.create_string_buffer(device_name)
        # struct rtentry of linux/route.h; zeros are padding, the type of service, a class, a metric and sizes
        route = struct.pack("L16s16s16sHhLPhPLLH", 0, everywhere, everywhere, everywhere, RTF_UP, 0, 0, 0, 0,
                            ctypes.addressof(buffer), 0, 0, 0)  # fmt: skip
        fcntl.ioctl(control, SIOCADDRT, route)
    return tunnel


def _address(text: str) -> bytes:
    return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))


def _destination(packet: bytes) -> str:
    """Address and port, or protocol, of an IP packet."""
    if packet[0] >> 4 != 4:
        return f"IP version {packet[0] >> 4}"
    header, protocol = 4 * (packet[0] & 15), packet[9]
    port = struct.unpack_from(">H", packet, header + 2)[0] if protocol in (6, 17) else f"protocol {protocol}"
    return f"{socket.inet_ntoa(packet[16:20])}:{port}"


def main(output: str, command: list[str]) -> int:
    listener = Listener()
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        listener.close()
        Path(output).write_text(json.dumps(listener.packets))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
