"""MessagePack written by the tests themselves, in the forms that Proton's writer uses.

`python -m tests.capture.loaders._msgpack` writes the tree of `scopes.hatchet` in that form as a fixture.
"""

import json
import struct
from typing import Any

from tests.conftest import FIXTURES


def pack(value: Any) -> bytes:
    """Return a value: the shortest form for its size, as the specification has them."""
    match value:
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return _unsigned(value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            return _string(value.encode())
        case dict():
            inside = b"".join(pack(k) + pack(v) for k, v in value.items())
            return _sized(len(value), 0x80, b"\xde", b"\xdf") + inside
        case list():
            return _sized(len(value), 0x90, b"\xdc", b"\xdd") + b"".join(map(pack, value))
        case _:
            return b"\xc0"


def _unsigned(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    forms = (
        (1 << 8, b"\xcc", ">B"),
        (1 << 16, b"\xcd", ">H"),
        (1 << 32, b"\xce", ">I"),
        (1 << 64, b"\xcf", ">Q"),
    )
    mark, form = next((mark, form) for limit, mark, form in forms if value < limit)
    return mark + struct.pack(form, value)


def _string(raw: bytes) -> bytes:
    if len(raw) < 32:
        return bytes([0xA0 | len(raw)]) + raw
    return (b"\xd9" + bytes([len(raw)]) if len(raw) < 256 else b"\xda" + struct.pack(">H", len(raw))) + raw


def _sized(size: int, short: int, middle: bytes, long: bytes) -> bytes:
    if size < 16:
        return bytes([short | size])
    return middle + struct.pack(">H", size) if size < 1 << 16 else long + struct.pack(">I", size)


def proton(document: Any) -> bytes:
    """Return a Proton document as its writer packs it: of a node the frame, the metrics, the children."""
    tree, *devices = document
    return pack([_node(tree), *devices])


def _node(node: dict[str, Any]) -> dict[str, Any]:
    children = [_node(child) for child in node["children"]]
    return {"frame": node["frame"], "metrics": node["metrics"], "children": children}


def main() -> None:
    for name in ("scopes", "two_devices"):
        document = json.loads((FIXTURES / "proton" / f"{name}.hatchet").read_text())
        (FIXTURES / "proton" / f"{name}.hatchet_msgpack").write_bytes(proton(document))


if __name__ == "__main__":
    main()
