# An sftp server that changes what it is asked to keep: sftp_liar.py HOME passes everything through a real one, but for some
# words of our program in what is read back.
import os, subprocess, sys, threading

server = subprocess.Popen(["/usr/lib/openssh/sftp-server", "-d", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def there():
    while data := os.read(0, 65536):
        server.stdin.write(data)
        server.stdin.flush()
    server.stdin.close()


threading.Thread(target=there, daemon=True).start()
while data := os.read(server.stdout.fileno(), 65536):
    os.write(1, data.replace(b"virtual machine", b"virtual Machine"))
