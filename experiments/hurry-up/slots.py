#!/usr/bin/env python3
"""What a slot file says now. Usage: slots.py FILE     docs/formats.md has the format; this is its shortest reader."""

import struct
import sys
import time

FAILURES = ["no_slot", "no_tid", "virtual_threads", "too_deep", "not_rung", "errors", "events_lost"]


def read(path):
    """(methods, failures, slots); a slot is (tid, sequence, depth, method, entered_at, exited_at, nested)."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"ROOSTHOT" and struct.unpack_from("<I", data, 8) == (1,), path + " is no slot file"
    methods = []
    for entry in range(struct.unpack_from("<I", data, 28)[0]):
        state, length = struct.unpack_from("<II", data, 4096 + 512 * entry)
        name = data[4096 + 512 * entry + 8 :][:length].decode()
        methods.append((name, ["waiting", "watched", "refused"][state]))
    failures = dict(zip(FAILURES, struct.unpack_from("<7Q", data, 128)))
    slots = []
    for index in range(struct.unpack_from("<I", data, 184)[0]):
        sequence, depth, method, entered, exited, nested, tid = struct.unpack_from("<IHHQQQi", data, 36864 + 64 * index)
        if tid != 0:
            slots.append((tid, sequence, depth, method, entered, exited, nested))
    return methods, failures, slots


def enable(path, word):
    """0 off, 1 on, 3 on with exit times."""
    with open(path, "r+b") as file:
        file.seek(64)
        file.write(struct.pack("<I", word))


if __name__ == "__main__":
    methods, failures, slots = read(sys.argv[1])
    for name, state in methods:
        print(state, name)
    print("failures", {name: count for name, count in failures.items() if count} or "none")
    for tid, sequence, depth, method, entered, _, nested in slots:
        inside = f"inside for {(time.monotonic_ns() - entered) / 1e6:.3f} ms" if sequence % 2 else "outside"
        print(f"thread {tid}: {(sequence + 1) // 2} calls, {nested} nested, {inside}")
