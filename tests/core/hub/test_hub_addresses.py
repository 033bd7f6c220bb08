"""Addresses that clients of a server may have it connect to, and those that they may not."""

import pytest

from pumice import HubError
from pumice.hub.addresses import is_public, resolve_public


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_an_address_of_the_internet_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
        "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "203.0.113.1",
        "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808", "100::1", "2001::1", "2001:0:808:808::1", "2001:db8::1", "2002:7f00:1::",
        "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1",
        "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1", "2606:4700::1111%lo",
    ],
)  # fmt: skip
def test_an_address_of_no_host_of_the_internet_is_not(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost.", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "::1", "::ffff:127.0.0.1"]
)
def test_a_spelling_of_this_machine_is_refused(host):
    with pytest.raises((HubError, OSError)):
        resolve_public(host, 443)


def test_one_private_address_among_several_is_refused(monkeypatch):
    addresses = ["1.1.1.1", "10.0.0.1", "8.8.8.8"]
    monkeypatch.setattr("pumice.hub.addresses.resolve", lambda host, port: addresses)
    with pytest.raises(HubError, match=r"x\.example is 10\.0\.0\.1"):
        resolve_public("x.example", 443)
    addresses.remove("10.0.0.1")
    assert resolve_public("x.example", 443) == ["1.1.1.1", "8.8.8.8"]
