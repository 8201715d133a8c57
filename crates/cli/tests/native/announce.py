"""A client in Python: lines of JSON over the control socket."""

import json
import socket
import sys
import time

connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect(sys.argv[1])
lines = connection.makefile("rw")


def say(what):
    lines.write(json.dumps(what) + "\n")
    lines.flush()
    return json.loads(lines.readline())


assert say({"hello": {"name": "from python"}}) == {"done": {"id": 0}}
asked = say({"wake": {"cpus": sys.argv[2], "in": "5ms", "stay": "50s"}})
time.sleep(0.01)
assert say({"came": {"id": asked["done"]["id"]}}) == asked
assert "refused" in say({"wake": {"cpus": sys.argv[2], "in": "5 fortnights", "stay": "50ms"}})
assert "status" in say("planner")
