# Has matplotlib make its list of fonts, in a sandbox of its own, and sends that
# to the server: see fonts.go. All that arrives is checked there.
import json
import os
import signal
import socket
import sys


def answer():
    try:
        import matplotlib.font_manager
    except ModuleNotFoundError as e:
        if e.name == 'matplotlib':
            return {}  # there is one, but not for this Python
        raise
    folder = matplotlib.get_cachedir()
    name, = [n for n in os.listdir(folder) if n.startswith('fontlist-')]
    with open(os.path.join(folder, name), encoding='utf-8') as f:
        return {'name': name, 'list': json.load(f)}


# The first process of a sandbox is spared every signal that it does not take.
signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
signal.alarm(300)
text = json.dumps(answer(), separators=(',', ':')).encode()
server = socket.socket(fileno=int(sys.argv[sys.argv.index('--listen-fd') + 1]))
server.accept()[0].sendall(text)
