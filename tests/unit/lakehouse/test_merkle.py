"""Tree hashes against the test vectors of Certificate Transparency (RFC 6962)."""

from __future__ import annotations

from hashlib import sha256

import pytest

from afterbay.lakehouse import merkle

LEAVES = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@pytest.mark.parametrize("size", range(9))
def test_roots_are_those_of_rfc_6962(size: int) -> None:
    hashes = [merkle.leaf_hash(bytes.fromhex(leaf)) for leaf in LEAVES[:size]]
    assert merkle.root(hashes).hex() == ROOTS[size]


def test_a_doubled_last_leaf_gives_another_root() -> None:
    three = [merkle.leaf_hash(leaf) for leaf in (b"a", b"b", b"c")]
    assert merkle.root(three) != merkle.root([*three, three[-1]])


def test_leaf_data_is_every_part_with_its_length() -> None:
    hashes = (sha256(b"k").digest(), sha256(b"h").digest(), sha256(b"v").digest())
    data = merkle.leaf_data("topic", 3, 258, -1, hashes)
    number = b"\x00\x00\x00\x08"
    assert data == b"".join(
        [
            b"\x00\x00\x00\x05topic",
            number + b"\x00\x00\x00\x00\x00\x00\x00\x03",
            number + b"\x00\x00\x00\x00\x00\x00\x01\x02",
            number + b"\xff" * 8,
            *(b"\x00\x00\x00\x20" + part for part in hashes),
        ]
    )


def test_headers_hash_tells_where_a_name_ends() -> None:
    assert merkle.headers_hash([("ab", b"c")]) != merkle.headers_hash([("a", b"bc")])
    assert merkle.headers_hash([]) == sha256(b"").digest()
