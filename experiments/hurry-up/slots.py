#!/usr/bin/env python3
"""Prints a slot file as it is now: docs/formats.md has the format; this is its shortest reader.

Usage: slots.py FILE"""

import struct
import sys
import time

# Where the slots begin.
SLOTS = 36864
FAILURES = ["no_slot", "no_tid", "virtual_threads", "too_deep", "not_rung", "errors", "events_lost"]


def read(path):
    """(methods, failures, slots); a slot is (tid, sequence, depth, method, entered_at, exited_at,
    nested)."""
    with open(path, "rb") as file:
        head = file.read(SLOTS)
        assert head[:8] == b"ROOSTHOT" and struct.unpack_from("<I", head, 8) == (1,), (
            path + " is no slot file"
        )
        used = file.read(64 * struct.unpack_from("<I", head, 184)[0])
    methods = []
    for entry in range(struct.unpack_from("<I", head, 28)[0]):
        state, length = struct.unpack_from("<II", head, 4096 + 512 * entry)
        name = head[4096 + 512 * entry + 8 :][:length].decode()
        methods.append((name, ["waiting", "watched", "refused"][state]))
    failures = dict(zip(FAILURES, struct.unpack_from("<7Q", head, 128)))
    slots = []
    for sequence, depth, method, entered, exited, nested, tid, _ in struct.iter_unpack("<IHHQQQiI24x", used):
        if tid != 0:
            slots.append((tid, sequence, depth, method, entered, exited, nested))
    return methods, failures, slots


def next_event(path):
    """The number of the event that comes next."""
    with open(path, "rb") as file:
        file.seek(192)
        return struct.unpack("<Q", file.read(8))[0]


def calls(path, since):
    """Every call from outside that began and ended since that event: (entered_at, nanoseconds
    inside, thread), in order of time.

    Raises ValueError if the ring was too short for them: then nothing is known of some."""
    with open(path, "rb") as file:
        head = file.read(200)
        slots, ring = struct.unpack_from("<II", head, 12)
        (until,) = struct.unpack_from("<Q", head, 192)
        file.seek(SLOTS + 64 * slots)
        events = file.read(32 * ring)
    if until - since > ring:
        raise ValueError(
            f"{until - since} events came and the ring holds {ring}: give the agent a longer one (events=)"
        )
    inside, found, lost = {}, [], 0
    for number in range(since, until):
        ticket, at, tid, _, kind, sequence, depth, _ = struct.unpack_from(
            "<QQiHHIHH", events, 32 * (number % ring)
        )
        if ticket != number + 1:
            lost += 1
        elif kind == 1 and depth == 1:
            inside[tid] = (sequence, at)
        elif kind == 2 and depth == 0 and inside.get(tid, (None,))[0] == sequence - 1:
            entered = inside.pop(tid)[1]
            found.append((entered, at - entered, tid))
    if lost:
        raise ValueError(f"{lost} events are missing")
    return sorted(found)


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
