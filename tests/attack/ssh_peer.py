# Peers of an ssh client that are no good. ssh_peer.py MODE [ARGUMENT...]: prints its port, then serves for ever.
#   close | banner | garbage | flood | lines | drip | silent    what it does with each connection
#   cut PORT BYTES        passes on to 127.0.0.1:PORT, and hangs up after so many bytes from there
#   flip PORT BYTES       passes on, with a bit of each of the 16 bytes from that one on turned over: the padding of a
#                       packet, which nobody checks before there are keys, is shorter
import os, socket, sys, threading, time

mode = sys.argv[1]


def serve(s):
    try:
        if mode == "banner":
            s.sendall(b"SSH-2.0-x\r\n")
        elif mode == "garbage":
            s.sendall(b"SSH-2.0-x\r\n" + os.urandom(65536))
        elif mode == "flood":
            s.sendall(b"SSH-2.0-x\r\n")
            while True:
                s.sendall(os.urandom(65536))
        elif mode == "lines":
            while True:
                s.sendall(b"welcome to this machine\r\n" * 1000)
        elif mode == "drip":
            while True:
                s.sendall(b"x")
                time.sleep(1)
        elif mode == "silent":
            while s.recv(65536):
                pass
        elif mode in ("cut", "flip"):
            relay(s, int(sys.argv[2]), int(sys.argv[3]))
    except OSError:
        pass
    s.close()


def relay(s, port, limit):
    far = socket.create_connection(("127.0.0.1", port))

    def there():
        try:
            while data := s.recv(65536):
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    threading.Thread(target=there, daemon=True).start()
    done = 0
    while data := far.recv(65536):
        data = bytearray(data)
        if mode == "flip":
            for i in range(max(limit - done, 0), min(limit + 16 - done, len(data))):
                data[i] ^= 1
        if mode == "cut" and done + len(data) > limit:
            s.sendall(data[: limit - done])
            s.shutdown(socket.SHUT_RDWR)
            far.close()
            return
        s.sendall(data)
        done += len(data)


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(50)
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
