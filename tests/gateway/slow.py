# Clients and providers that are too slow, all at once: each is cut off at its limit, and others do not notice. Takes ten
# minutes.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *

up = Provider()
gw = Instance().start()
S = gw.sock
gw.ctl("policy-set", data=policy(up).encode())
gw.ctl("key", "anthropic", data=KEY.encode())
token = gw.ctl("mint", "engine", "7", "app", "none", "")
HEAD = "POST /v1/messages HTTP/1.1\r\nHost: h\r\nx-api-key: %s\r\nContent-Type: application/json\r\n" % token
ends = {}


def until_cut(name, c, drip):
    """Sends drip every half second; notes after how long what came."""
    def run():
        start = time.monotonic()
        c.s.settimeout(0.5)
        status = 0
        while time.monotonic() < start + 160:
            try:
                c.send(drip)
            except OSError:
                pass
            try:
                data = c.s.recv(4096)
                status = int(data.split()[1]) if data else status
                if not data or b"408" in data:
                    break
            except TimeoutError:
                pass
            except OSError:
                break
        ends[name] = (time.monotonic() - start, status)
        c.close()
    t = threading.Thread(target=run, daemon=True)
    t.start()
    return t


def flood(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"data: " + b"x" * 8000 + b"\n\n"
    try:
        for i in range(100000):
            c.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
    except OSError:
        up.aborted += 1
        raise


up.script["claude-flood"] = flood
reader = Client(S, 200)
reader.ask("POST", "/v1/messages", token, message("claude-flood", stream=True)).head()
gone = threading.Event()
up.script["claude-mute"] = lambda c, r: (gone.wait(700), "close")[1]
up.script["claude-stuck"] = lambda c, r: (c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n:\r\n\r\n\r\n"), gone.wait(700), "close")[2]
silent = {m: Client(S, 700).ask("POST", "/v1/messages", token, message(m, stream=True)) for m in ("claude-mute", "claude-stuck")}
begun = time.monotonic()
threads = []
for name, first, drip in [("head", HEAD, b"X: y\r\n"), ("body", HEAD + "Content-Length: 1000\r\n\r\n", b" "), ("chunks", HEAD + "Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"), ("idle", "", b"")]:
    c = Client(S)
    c.send(first.encode())
    threads.append(until_cut(name, c, drip))
start = time.monotonic()
stopped = within(100, lambda: up.aborted)
check("a reader that takes nothing for a minute is given up, and the provider's stream with it", stopped and 55 < time.monotonic() - start < 95, time.monotonic() - start)
times = []
while any(t.is_alive() for t in threads):
    t = time.monotonic()
    r = call(S, "POST", "/v1/messages", token, message())
    times.append(time.monotonic() - t)
    time.sleep(0.2)
for name, least, most, status in [("head", 9, 30, 408), ("body", 59, 80, 408), ("chunks", 59, 80, 408), ("idle", 119, 140, 0)]:
    took, got = ends[name]
    check("a slow " + name if name != "idle" else "an idle connection", least < took < most and got == status, took, got)
check("others are served meanwhile", sorted(times)[len(times) // 2] < 5 and min(times) < 0.1, sorted(times)[-5:])
equal("none of it went to the provider", {r.json["model"] for r in up.requests}, {"claude-flood", "claude-a", "claude-mute", "claude-stuck"})
c = silent["claude-mute"].head()
equal("a provider that never answers is given up after ten minutes", (c.status, 595 < time.monotonic() - begun < 640), (504, True))
c = silent["claude-stuck"].head()
data, whole = c.body()
check("so is one that falls silent, and its answer does not look complete", c.status == 200 and not whole and 595 < time.monotonic() - begun < 640, time.monotonic() - begun)
check("the ledger says so", within(60, lambda: sum(r.get("result") == "provider silent" for r in gw.ledger()) == 2))
gone.set()
gw.ctl("stop")
sys.exit(failed)
