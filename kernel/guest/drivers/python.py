# The Python driver: runs cells for Sandbook inside the kernel process.
#
# It works on any CPython from 3.8 with the standard library alone. Nothing
# here is trusted by anybody: whatever it says is data to the guest program
# that supervises it. What it must do is stay alive under user code that
# replaces builtins, closes descriptors or swallows interrupts, so it keeps its
# own copy of the builtins (see boot.py), captures the functions it needs
# before any user code runs, and imports nothing it does not need for the
# first cell.
#
# Descriptors: 0 /dev/null, 1 and 2 pipes of the run, 3 requests from the
# guest (stream socket: uint32 length, JSON; a run brings two descriptors), 4
# records to the guest (pipe), 5 answers to input() (pipe).
#
# A record is at most PIPE_BUF bytes, so that every write is atomic: threads
# and forked children need no lock and a KeyboardInterrupt tears no frame.
#     uint8 kind, uint8 flags (1: more follows), uint16 length, uint32 run,
#     uint32 message, payload
import _ast
from _collections import deque as _deque
import _json
import _signal
import _socket
import _struct
import _thread
import builtins
import os
import sys
import time

FILE = '<sandbook>'
REQ, UP, IN = 3, 4, 5
STDOUT, STDERR, MESSAGE = 1, 2, 3
CHUNK = 4096 - 12
MAX_BUNDLE = 24 << 20

_write, _read, _dup2, _close = os.write, os.read, os.dup2, os.close
_getpid, _exit, _environ = os.getpid, os._exit, os.environ
_pack = _struct.Struct('>BBHII').pack
_ident = _thread.get_ident
_now = time.time_ns
_setrecursionlimit, _getrecursionlimit = sys.setrecursionlimit, sys.getrecursionlimit
_settrace, _setprofile = sys.settrace, sys.setprofile
_setsignal, SIGINT = _signal.signal, _signal.SIGINT
_modules = sys.modules
_sleep = time.sleep
_compile, _eval, _exec = compile, eval, exec


class State:
    """What the driver knows. One instance, ST."""
    run = 0            # number of the current or last run
    main = 0           # ident of the main thread
    pid = 0
    user = False       # user code is running: an interrupt may raise
    pending = False    # an interrupt came while it must not raise
    sigint_at = 0      # when the last one came, unix ns
    message = 0
    count = 0
    silent = False
    no_stdin = False
    flags = 0          # __future__ features of earlier cells
    loop = None        # the asyncio loop of top-level await
    shell = None       # IPython, once it is wanted
    input_serial = 0
    direct = False     # write text at once: a forked child has no flusher
    awake = False      # the flusher looks by itself
    flushing = 0       # ident of the thread that flushes


ST = State()
waiting = _deque()     # text not sent yet: (kind, run, bytes)
held = _deque()        # at most one message that goes out with the next
flush_lock = _thread.allocate_lock()
wake_lock = _thread.allocate_lock()
wake_lock.acquire()
owners = {}            # thread ident -> run number, for threads with an owner
sources = {}           # file name -> linecache entry
extras = {}            # name -> source of a part not loaded yet
parts = {}             # name -> namespace of a loaded part
NS = {}                # the user's names: __main__.__dict__
hooks = {}             # module name -> function called after its import
before_end = []        # called when a cell has run, such as to show plots


# ---------------------------------------------------------------- records

def owner():
    if owners:
        return owners.get(_ident(), ST.run)
    return ST.run


def send_text(kind, data):
    """Take bytes of standard output or error. A line goes out at once; the
    pieces of one are joined, and what stays unfinished is sent a little later
    by the flusher."""
    run = owner()
    if ST.direct:
        put(kind, run, data)
        return
    waiting.append((kind, run, data))
    if data[-1] == 10 or len(data) > 512 or len(waiting) > 500:
        flush()
    elif not ST.awake:
        try:
            wake_lock.release()
        except RuntimeError:
            pass


def flush():
    """Send the text that waits, in order."""
    me = _ident()
    if not flush_lock.acquire(False):
        if ST.flushing == me:
            return  # a signal handler printed while its thread flushes
        flush_lock.acquire()
    try:
        ST.flushing = me
        while waiting:
            kind, run, data = waiting.popleft()
            if waiting:
                parts, size = [data], len(data)
                while waiting and size < CHUNK and waiting[0][0] == kind and waiting[0][1] == run:
                    more = waiting.popleft()[2]
                    parts.append(more)
                    size += len(more)
                data = b''.join(parts)
            put(kind, run, data)
    finally:
        ST.flushing = 0
        flush_lock.release()


def flusher():
    while True:
        wake_lock.acquire()
        ST.awake = True
        quiet = 0
        while quiet < 50:
            _sleep(0.01)
            quiet += 1
            if waiting:
                quiet = 0
                flush()
        ST.awake = False
        if waiting:
            flush()


def unhold(data):
    """What is held, and data after it, to be written at once. A write to a pipe
    is whole only up to its atomic size, so what does not fit goes before."""
    while held:
        try:
            first = held.popleft()
        except IndexError:  # another thread was quicker
            break
        if len(first) + len(data) <= 4096:
            data = first + data
        else:
            _write(UP, first)
    return data


def put(kind, run, data):
    """Write text as records."""
    n = len(data)
    try:
        if held:
            first = unhold(b'')
            if first:
                _write(UP, first)
        if n <= CHUNK:
            _write(UP, _pack(kind, 0, n, run, 0) + data)
            return
        view = memoryview(data)
        for i in range(0, n, CHUNK):
            part = view[i:i + CHUNK]
            _write(UP, _pack(kind, 0, len(part), run, 0) + part)
    except OSError:
        gone()


def gone():
    """The channel is closed. Nothing can be reported any more."""
    if _getpid() == ST.pid:
        _exit(70)


def send(message, run=None, hold=False):
    """Send a message: a JSON object in one or more records. One to hold goes
    out with the next, which is about to come."""
    if _getpid() != ST.pid:
        return  # a forked child has output, but no say
    data = encode(message)
    if waiting:
        flush()
    if run is None:
        run = owner()
    ST.message = mid = (ST.message + 1) & 0xffffffff
    n = len(data)
    try:
        if n <= CHUNK:
            data = _pack(MESSAGE, 0, n, run, mid) + data
            if hold and n <= CHUNK // 2:
                held.append(data)
                return
            if held:
                data = unhold(data)
            _write(UP, data)
            return
        if held:
            first = unhold(b'')
            if first:
                _write(UP, first)
        view = memoryview(data)
        for i in range(0, n, CHUNK):
            part = view[i:i + CHUNK]
            _write(UP, _pack(MESSAGE, 1 if i + CHUNK < n else 0, len(part), run, mid) + part)
    except OSError:
        gone()


def _default(o):
    """Give JSON a value for what it does not know."""
    for name in ('tolist', 'item', 'isoformat', '_asdict'):
        f = getattr(o, name, None)
        if f is not None and not isinstance(o, type):
            try:
                v = f()
            except Exception:
                continue
            if type(v) is not type(o):
                return v
    if isinstance(o, (bytes, bytearray, memoryview)):
        return base64(bytes(o))
    if isinstance(o, (set, frozenset)):
        return list(o)
    return str(o)


def _encoder(nan):
    return _json.make_encoder(None, _default, _json.encode_basestring_ascii, None, ':', ',', False, False, nan)


def encode(v):
    try:
        return ''.join(_encode_strict(v, 0)).encode('ascii')
    except (ValueError, TypeError, RecursionError):
        return ''.join(_encode_strict(_plain(v, 0), 0)).encode('ascii')


def _plain(v, depth):
    """A copy of v that is certainly JSON: no NaN, no odd keys, not too deep."""
    if v is None or v is True or v is False or type(v) is int or type(v) is str:
        return v
    if isinstance(v, float):
        return float(v) if v == v and v not in (float('inf'), float('-inf')) else None
    if depth > 100:
        return None
    if isinstance(v, dict):
        return {str(k): _plain(x, depth + 1) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [_plain(x, depth + 1) for x in v]
    if isinstance(v, int):
        return int(v)
    if isinstance(v, str):
        return str.__str__(v)
    try:
        return _plain(_default(v), depth + 1)
    except Exception:
        return None


class _Scan:
    """What the C scanner asks of its context."""
    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo = {}


_encode_strict = _encoder(False)
_scan = _json.make_scanner(_Scan())


def decode(b):
    return _scan(b.decode('utf-8'), 0)[0]


def base64(b):
    import binascii
    return binascii.b2a_base64(b, newline=False).decode('ascii')


# ---------------------------------------------------------------- streams

class Stream:
    """sys.stdout and sys.stderr. Every write goes out at once."""
    encoding = 'utf-8'
    errors = 'backslashreplace'
    newlines = None
    line_buffering = True
    write_through = True
    closed = False
    mode = 'w'

    def __init__(self, kind, name):
        self._kind = kind
        self.name = name
        self.buffer = Raw(self)

    def write(self, text):
        if type(text) is not str:
            if not isinstance(text, str):
                raise TypeError('write() argument must be str, not %s' % type(text).__name__)
            text = str.__str__(text)
        if text:
            try:
                data = text.encode()
            except UnicodeEncodeError:
                data = text.encode('utf-8', 'backslashreplace')
            send_text(self._kind, data)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def fileno(self):
        return self._kind

    def flush(self):
        if waiting:
            flush()

    def close(self): pass
    def isatty(self): return False
    def readable(self): return False
    def writable(self): return True
    def seekable(self): return False
    def reconfigure(self, **kw): pass
    def detach(self): return self.buffer
    def __enter__(self): return self
    def __exit__(self, *a): return None
    def __iter__(self): return self
    def __next__(self): raise OSError('not readable')
    def read(self, n=-1): raise OSError('not readable')
    readline = read
    def __repr__(self): return '<sandbook %s>' % self.name
    def __reduce__(self): return (getattr, (sys, self.name.strip('<>')))


class Raw:
    """The bytes below a Stream."""
    closed = False
    mode = 'wb'

    def __init__(self, text):
        self._text = text
        self.name = text.name
        self.raw = self

    def write(self, data):
        data = bytes(data)
        if data:
            send_text(self._text._kind, data)
        return len(data)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def fileno(self): return self._text._kind
    def flush(self): self._text.flush()
    def close(self): pass
    def isatty(self): return False
    def readable(self): return False
    def writable(self): return True
    def seekable(self): return False


class Stdin:
    """sys.stdin: each line is asked of the person."""
    encoding = 'utf-8'
    errors = 'strict'
    newlines = None
    closed = False
    mode = 'r'
    name = '<stdin>'

    def readline(self, n=-1):
        return ask('', False) + '\n'

    def read(self, n=-1):
        return self.readline()

    def readlines(self, n=-1):
        return [self.readline()]

    def __iter__(self): return self
    def __next__(self): return self.readline()
    def fileno(self): return 0
    def flush(self): pass
    def close(self): pass
    def isatty(self): return False
    def readable(self): return True
    def writable(self): return False
    def seekable(self): return False


stdout, stderr, stdin = Stream(STDOUT, '<stdout>'), Stream(STDERR, '<stderr>'), Stdin()

_in_buffer = b''
_in_lock = _thread.allocate_lock()


def ask(prompt, password):
    """Ask the person who looks at the run for a line."""
    global _in_buffer
    if ST.no_stdin:
        raise RuntimeError('input() was called, but this run was started without anybody to answer it.')
    if _getpid() != ST.pid:
        raise EOFError('A forked process cannot ask for input.')
    import select
    _in_lock.acquire()
    try:
        ST.input_serial += 1
        serial = ST.input_serial
        send({'t': 'input', 'serial': serial, 'content': {'prompt': str(prompt), 'password': bool(password)}})
        poll = select.poll()
        poll.register(IN, 1)
        while True:
            poll.poll()  # an interrupt raises here, and nowhere below
            quiet = _ident() == ST.main
            if quiet:
                ST.user = False
            data = _read(IN, 65536)
            if not data:
                gone()
                raise EOFError('The notebook is gone.')
            _in_buffer += data
            value = None
            while len(_in_buffer) >= 8:
                n = int.from_bytes(_in_buffer[:4], 'big')
                if len(_in_buffer) < 8 + n:
                    break
                if int.from_bytes(_in_buffer[4:8], 'big') == serial:
                    value = _in_buffer[8:8 + n].decode('utf-8', 'replace')
                _in_buffer = _in_buffer[8 + n:]
            if quiet:
                ST.user = True
                if ST.pending:
                    ST.pending = False
                    raise KeyboardInterrupt
            if value is not None:
                return value
    finally:
        _in_lock.release()


def user_input(prompt='', /):
    """Ask for a line of text in the notebook."""
    return ask(prompt, False)


user_input.__name__ = user_input.__qualname__ = 'input'


# ---------------------------------------------------------------- display

REPRS = (
    ('text/html', '_repr_html_'), ('text/markdown', '_repr_markdown_'),
    ('image/svg+xml', '_repr_svg_'), ('image/png', '_repr_png_'),
    ('image/jpeg', '_repr_jpeg_'), ('application/pdf', '_repr_pdf_'),
    ('text/latex', '_repr_latex_'), ('application/json', '_repr_json_'),
    ('application/javascript', '_repr_javascript_'),
)
printers = {}          # 'module.Class' -> function giving (data, metadata)
CANARY = '_ipython_canary_method_should_not_exist_'


def method(obj, name):
    """The named method of obj, or None; objects that answer to any name have none."""
    if isinstance(obj, type):
        return None
    try:
        if getattr(obj, CANARY, None) is not None:
            return None
        m = getattr(obj, name, None)
    except Exception:
        return None
    return m if callable(m) else None


def complain(what, obj, err):
    stderr.write('%s of %s failed: %s\n' % (what, type(obj).__name__, describe(err)))


def describe(err):
    try:
        return '%s: %s' % (type(err).__name__, err)
    except Exception:
        return type(err).__name__


def text_of(obj):
    """The plain text of obj; big containers are cut as IPython cuts them."""
    try:
        if type(obj) in (dict, list, tuple, set, frozenset):
            if len(obj) > 1000:
                return cut(obj)
            s = repr(obj)
            if len(s) > 88:
                try:
                    with std():
                        import pprint
                    s = pprint.pformat(obj, width=88, compact=type(obj) is not dict, sort_dicts=False)
                except Exception:
                    pass
            return s
        s = repr(obj)
        return s if type(s) is str else str(s)
    except Exception as e:
        return '<%s object at %#x; its repr failed: %s>' % (type(obj).__name__, id(obj), describe(e))


def cut(obj):
    import itertools
    first = list(itertools.islice(obj.items() if type(obj) is dict else obj, 1000))
    if type(obj) is dict:
        body, pair = ',\n '.join('%r: %r' % kv for kv in first), '{}'
    else:
        body = ',\n '.join(repr(x) for x in first)
        pair = {list: '[]', tuple: '()'}.get(type(obj), '{}')
    return '%s%s,\n ...%s  # %d items' % (pair[0], body, pair[1], len(obj))


def bundle(obj, include=None, exclude=None):
    """The MIME bundle of obj: (data, metadata), or None when obj showed itself."""
    if type(obj) in SIMPLE:
        return {'text/plain': text_of(obj)}, {}
    show = method(obj, '_ipython_display_')
    if show is not None:
        try:
            show()
            return None
        except NotImplementedError:
            pass
        except Exception as e:
            complain('_ipython_display_', obj, e)
    data, meta = {}, {}
    if ST.shell is not None:
        d, m = ST.shell.display_formatter.format(obj, include=include, exclude=exclude)
        data.update(d)
        meta.update(m)
    else:
        multi = method(obj, '_repr_mimebundle_')
        if multi is not None:
            try:
                got = multi(include=include, exclude=exclude)
                if isinstance(got, tuple) and len(got) == 2:
                    data.update(got[0])
                    meta.update(got[1])
                elif got is not None:
                    data.update(got)
            except Exception as e:
                complain('_repr_mimebundle_', obj, e)
        for mime, name in REPRS:
            if mime in data or (mime == 'image/jpeg' and 'image/png' in data):
                continue
            m = method(obj, name)
            if m is None:
                continue
            try:
                got = m()
            except Exception as e:
                complain(name, obj, e)
                continue
            if isinstance(got, tuple) and len(got) == 2:
                meta[mime] = got[1]
                got = got[0]
            if got is not None:
                data[mime] = got
    printer = None
    if printers and not isinstance(obj, type):
        for c in type(obj).__mro__:
            printer = printers.get('%s.%s' % (getattr(c, '__module__', ''), c.__qualname__))
            if printer is not None:
                break
    if printer is not None:
        try:
            d, m = printer(obj)
            for k, v in d.items():
                data.setdefault(k, v)
            for k, v in m.items():
                meta.setdefault(k, v)
        except Exception as e:
            complain('Showing', obj, e)
    if 'text/plain' not in data:
        data['text/plain'] = text_of(obj)
    if include:
        data = {k: v for k, v in data.items() if k in include}
    if exclude:
        data = {k: v for k, v in data.items() if k not in exclude}
    return clean(data), {k: v for k, v in meta.items() if isinstance(k, str)}


SIMPLE = frozenset((int, float, str, bool, bytes, list, dict, tuple, set, frozenset, complex, type(None)))


def clean(data):
    """Make every entry of a bundle fit for JSON, and drop what is too big."""
    out = {}
    for mime, v in data.items():
        if not isinstance(mime, str):
            continue
        if isinstance(v, (bytes, bytearray, memoryview)):
            v = bytes(v)
            v = v.decode('utf-8', 'replace') if mime.startswith('text/') or mime == 'image/svg+xml' else base64(v)
        elif not (isinstance(v, str) or mime == 'application/json' or mime.endswith('+json')):
            v = str(v)
        if isinstance(v, str) and len(v) > MAX_BUNDLE:
            out.setdefault('text/plain', '')
            stderr.write('An output of type %s was left out: it has %d characters, and the most is %d.\n' % (mime, len(v), MAX_BUNDLE))
            continue
        out[mime] = v
    return out


class DisplayHandle:
    """What display(..., display_id=...) gives back."""

    def __init__(self, display_id):
        self.display_id = display_id

    def display(self, obj, **kw):
        display(obj, display_id=self.display_id, **kw)

    def update(self, obj, **kw):
        update_display(obj, display_id=self.display_id, **kw)

    def __repr__(self):
        return '<DisplayHandle display_id=%s>' % self.display_id


def new_id():
    import binascii
    return binascii.b2a_hex(os.urandom(16)).decode('ascii')


def publish(data, metadata=None, transient=None, update=False):
    """Send a bundle that is ready."""
    if _getpid() != ST.pid:
        stdout.write(str(data.get('text/plain', '')) + '\n')
        return
    send({'t': 'update' if update else 'display', 'content': {
        'data': data, 'metadata': metadata or {}, 'transient': transient or {}}})


def display(*objs, include=None, exclude=None, metadata=None, transient=None, display_id=None, raw=False, clear=False, update=False, **kw):
    """Show objects in the notebook in the richest form they have."""
    if clear:
        clear_output(wait=True)
    transient = dict(transient or {})
    if display_id is True:
        display_id = new_id()
    if display_id is not None:
        transient['display_id'] = str(display_id)
    for obj in objs:
        if raw:
            got = (clean(obj), {})
        else:
            got = bundle(obj, include, exclude)
        if got is None:
            continue
        data, meta = got
        if metadata:
            meta.update(metadata)
        if data:
            publish(data, meta, transient, update)
    if display_id is not None and not update:
        return DisplayHandle(str(display_id))


def update_display(obj, *, display_id, **kw):
    """Replace what display(..., display_id=...) showed."""
    display(obj, display_id=display_id, update=True, **kw)


def clear_output(wait=False):
    """Remove the outputs of the cell, at once or with the next output."""
    send({'t': 'clear', 'content': {'wait': bool(wait)}})


def displayhook(value):
    """Show the value of a cell's last expression and remember it."""
    if value is None:
        return
    if '_' not in NS or NS['_'] is remembered[0]:
        NS['___'], NS['__'], NS['_'] = NS.get('__'), NS.get('_'), value
        remembered[0] = value
    n = ST.count
    out = NS.get('Out')
    if type(out) is dict:
        out[n] = value
    NS['_%d' % n] = value
    if ST.silent:
        return
    got = bundle(value)
    if got is not None and got[0]:
        send({'t': 'result', 'content': {'execution_count': n, 'data': got[0], 'metadata': got[1]}}, hold=True)


remembered = [None]


# ---------------------------------------------------------------- running

class std:
    """Import from the standard library, whatever lies in the workspace."""

    def __enter__(self):
        self.path = list(sys.path)
        here = _environ.get('PWD')
        sys.path[:] = [p for p in self.path if p and p != '.' and p != here]

    def __exit__(self, *a):
        sys.path[:] = self.path


def part(name):
    """Load a part of the driver that the first cells do not need."""
    ns = parts.get(name)
    if ns is None:
        # The part's own names, over ours: its functions find both.
        ns = dict(globals())
        ns['__name__'] = '_sandbook.' + name
        with std():
            _exec(_compile(extras[name], FILE, 'exec'), ns)
        parts[name] = ns
    return ns


def on_sigint(signum, frame):
    ST.sigint_at = _now()
    if ST.user:
        raise KeyboardInterrupt
    ST.pending = True


def register(name, source):
    """Give the cell a file name under which tracebacks find its lines."""
    base = '<cell %s>' % ''.join(c if c.isprintable() and c not in '<>' else ' ' for c in name[:80])
    lines = source.splitlines(True)
    if lines and not lines[-1].endswith('\n'):
        lines[-1] += '\n'
    fn = base
    old = sources.get(base)
    if old is not None and old[2] != lines:
        fn = '%s, run %d>' % (base[:-1], ST.count)
    entry = (len(source), None, lines, fn)
    sources[fn] = entry
    lc = _modules.get('linecache')
    if lc is not None:
        lc.cache[fn] = entry
    return fn


def hook_linecache(lc):
    lc.cache.update(sources)


hooks['linecache'] = hook_linecache


def ends_quietly(source, node):
    """Does the last expression end with a semicolon?"""
    lines = source.encode('utf-8').split(b'\n')
    rest = [lines[node.end_lineno - 1][node.end_col_offset:]] if node.end_lineno <= len(lines) else []
    rest += lines[node.end_lineno:]
    return any(r.lstrip(b' \t\r\f\\)').startswith(b';') for r in rest[:1]) or any(r.lstrip().startswith(b';') for r in rest[1:])


def run_source(source, fn):
    """Compile and run a cell. Exceptions of user code pass through."""
    tla = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = _compile(source, fn, 'exec', _ast.PyCF_ONLY_AST | tla | ST.flags, True)
    body = tree.body
    for node in body:
        if isinstance(node, _ast.ImportFrom) and node.module == '__future__':
            import __future__
            for a in node.names:
                f = getattr(__future__, a.name, None)
                ST.flags |= getattr(f, 'compiler_flag', 0)
    last = None
    if body and isinstance(body[-1], _ast.Expr):
        if ends_quietly(source, body[-1]):
            pass
        else:
            last = body.pop()
    codes = []
    if body:
        codes.append(_compile(tree, fn, 'exec', tla | ST.flags, True))
    if last is not None:
        codes.append(_compile(_ast.Expression(last.value), fn, 'eval', tla | ST.flags, True))
    value = None
    for code in codes:
        if code.co_flags & 0x80:
            value = part('aio')['run'](_eval(code, NS))
        else:
            value = _eval(code, NS)
    if last is not None:
        hook = sys.displayhook
        (displayhook if hook is default_hook else hook)(value)


default_hook = sys.displayhook


def needs_ipython(source):
    """Does the cell use the syntax that only IPython knows?"""
    for line in source.splitlines():
        s = line.lstrip()
        if s[:1] in ('%', '!', '?') or s.rstrip()[-1:] == '?':
            return True
        if '%' in s or '!' in s:
            head, eq, tail = s.partition('=')
            if eq and tail.lstrip()[:1] in ('%', '!'):
                return True
    return False


def execute(m):
    """Run one cell and report how it ended."""
    end = {'t': 'run_end', 'status': 'ok'}
    ST.run, ST.count = m['n'], m['count']
    ST.silent, ST.no_stdin = m['silent'], m['no_stdin']
    # One that came before the run was sent was for an earlier run; one that
    # came since, perhaps before we had read it, is for this one.
    ST.pending = ST.sigint_at >= m['at']
    try:
        try:
            perform(m)
            ST.user = False
        except BaseException as e:
            ST.user = False
            failed(e, end)
    except BaseException as e:
        # An interrupt in the moment before the lines above, or an error that
        # cannot be shown.
        ST.user = False
        name = type(e).__name__
        end.update(status='error', ename=name, evalue='')
        send({'t': 'error', 'content': {'ename': name, 'evalue': '', 'traceback': [name]}})
    ST.user = False
    settle()
    send(end)


def perform(m):
    """Run one cell. Exceptions of user code pass through."""
    repair()
    source = m['code'].replace('\r\n', '\n')
    past = NS.get('In')
    if type(past) is list:
        while len(past) < ST.count and len(past) < 100000:
            past.append('')
        if len(past) == ST.count:
            past.append(source)
    fn = register(m['name'] or str(ST.count), source)
    ST.user = True
    if ST.pending:
        ST.pending = False
        raise KeyboardInterrupt
    try:
        if 'get_ipython' in source and ST.shell is None:
            part('magic')['ensure_shell']()
        if needs_ipython(source):
            try:
                _compile(source, fn, 'exec', _ast.PyCF_ONLY_AST | _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
            except SyntaxError:
                source = part('magic')['transform'](source)
                register_transformed(fn, source)
        run_source(source, fn)
    finally:
        for f in before_end:
            f()


def register_transformed(fn, source):
    lines = source.splitlines(True)
    entry = (len(source), None, lines, fn)
    # Tracebacks show what was written where the line count still agrees.
    if len(lines) != len(sources[fn][2]):
        sources[fn] = entry
        lc = _modules.get('linecache')
        if lc is not None:
            lc.cache[fn] = entry


def failed(e, end):
    """Report an exception of user code."""
    if isinstance(e, SystemExit):
        code = e.code
        if code is None or code == 0:
            stderr.write('The cell ended itself with sys.exit(). The kernel is still running.\n')
            return
        text = 'The cell ended itself with sys.exit(%s). The kernel is still running.' % (text_of(code)[:200])
        end.update(status='error', ename='SystemExit', evalue=str(code)[:10000])
        send({'t': 'error', 'content': {'ename': 'SystemExit', 'evalue': str(code)[:10000], 'traceback': [text]}})
        return
    ename = type(e).__name__
    try:
        evalue = str(e)[:65536]
    except BaseException:
        evalue = '<exception str() failed>'
    end.update(status='error', ename=ename, evalue=evalue)
    if ename in ('UsageError', 'MagicError'):
        send({'t': 'error', 'content': {'ename': ename, 'evalue': evalue, 'traceback': ['%s: %s' % (ename, evalue)]}})
        return
    lines = None
    ST.user = True  # formatting calls code of the user; an interrupt may end it
    try:
        if ST.pending:
            ST.pending = False
        lines = part('errors')['format_exception'](e)
    except BaseException:
        lines = None
    ST.user = False
    if not lines:
        lines = minimal(e, ename, evalue)
    send({'t': 'error', 'content': {'ename': ename, 'evalue': evalue, 'traceback': lines}})


def minimal(e, ename, evalue):
    """A traceback made without the standard library."""
    lines = ['Traceback (most recent call last):']
    tb = e.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if code.co_filename != FILE:
            lines.append('  File "%s", line %d, in %s' % (code.co_filename, tb.tb_lineno, code.co_name))
            src = sources.get(code.co_filename)
            if src is not None and tb.tb_lineno <= len(src[2]):
                lines.append('    ' + src[2][tb.tb_lineno - 1].strip())
        tb = tb.tb_next
    lines = lines[:1] + lines[-100:]
    return ['\n'.join(lines), '%s: %s' % (ename, evalue)]


def settle():
    """Undo what a cell may have done to the interpreter itself."""
    try:
        _settrace(None)
        _setprofile(None)
        if _getrecursionlimit() < 1000:
            _setrecursionlimit(1000)
    except BaseException:
        pass


def in_child():
    """A forked child: its text goes out directly."""
    ST.direct = True
    waiting.clear()
    held.clear()


def repair():
    """Put the driver's own things back before a cell."""
    global flush_lock
    if flush_lock.locked() and ST.flushing in (0, ST.main):
        flush_lock = _thread.allocate_lock()  # an interrupt came at a bad moment
    sys.stdout = sys.__stdout__ = stdout
    sys.stderr = sys.__stderr__ = stderr
    sys.stdin = sys.__stdin__ = stdin
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
    _modules['_sandbook'] = _modules.get('_sandbook') or this
    _modules['__main__'] = main_module
    NS.setdefault('__builtins__', builtins)
    builtins.display = display
    if getattr(builtins, 'input', None) is None:
        builtins.input = user_input
    _setsignal(SIGINT, on_sigint)


# ---------------------------------------------------------------- imports

class Finder:
    """Calls a hook after a module of a known name was imported."""
    busy = set()

    def find_spec(self, name, path=None, target=None):
        hook = hooks.get(name)
        if hook is None or name in self.busy:
            return None
        self.busy.add(name)
        try:
            spec = None
            for f in list(sys.meta_path):
                find = getattr(f, 'find_spec', None)
                if f is self or find is None:
                    continue
                spec = find(name, path, target)
                if spec is not None:
                    break
        finally:
            self.busy.discard(name)
        loader = getattr(spec, 'loader', None)
        load = getattr(loader, 'exec_module', None)
        if load is None:
            return spec

        def exec_module(module):
            load(module)
            after(hook, module)
        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass
        return spec


def after(hook, module):
    try:
        hook(module)
    except Exception as e:
        if _environ.get('SANDBOOK_DEBUG'):
            stderr.write('hook of %s: %s\n' % (module.__name__, describe(e)))


finder = Finder()


def hook_threading(threading):
    """Let a thread's output belong to the run that started it."""
    cls = threading.Thread
    if getattr(cls, '_sandbook', None):
        return
    cls._sandbook = True
    start, bootstrap = cls.start, cls._bootstrap

    def start_owned(self):
        # A thread that runs an event loop works for whoever gives it work.
        if getattr(getattr(self, '_target', None), '__name__', '') != 'run_forever':
            self._sandbook_run = owner()
        return start(self)

    def bootstrap_owned(self):
        ident = _ident()
        run = getattr(self, '_sandbook_run', None)
        if run is not None:
            owners[ident] = run
        try:
            bootstrap(self)
        finally:
            owners.pop(ident, None)
    start_owned.__name__ = 'start'
    start_owned.__doc__ = start.__doc__
    cls.start, cls._bootstrap = start_owned, bootstrap_owned


def settle_text():
    """Send the text that waits, and let the guest take it, before a process
    starts: what the process prints comes by another way and would overtake it.
    A guest that is held up is not waited for long."""
    flush()
    try:
        ioctl = _modules['fcntl'].ioctl
        for _ in range(200):
            if not any(ioctl(UP, 0x541B, b'\0\0\0\0')):  # FIONREAD: bytes in the pipe
                return
            _sleep(0.0005)
    except Exception:
        pass


def hook_subprocess(subprocess):
    import fcntl  # noqa: F401, for settle_text
    cls = subprocess.Popen
    start = cls._execute_child
    if getattr(start, '_sandbook', None):
        return

    def _execute_child(self, *args, **kwargs):
        settle_text()
        return start(self, *args, **kwargs)
    _execute_child._sandbook = True
    cls._execute_child = _execute_child


def hook_getpass(getpass):
    def ask_password(prompt='Password: ', stream=None, **kw):
        return ask(prompt, True)
    ask_password.__name__ = 'getpass'
    getpass.getpass = ask_password


def lazy(part_name, function):
    """A hook that lives in a part."""
    def hook(module):
        part(part_name)[function](module)
    return hook


hooks.update({
    'threading': hook_threading,
    'subprocess': hook_subprocess,
    'getpass': hook_getpass,
    'matplotlib': lazy('plots', 'hook_matplotlib'),
    'matplotlib.pyplot': lazy('plots', 'hook_pyplot'),
    'matplotlib.figure': lazy('plots', 'hook_figure'),
    'PIL.Image': lazy('plots', 'hook_pil'),
    'plotly.basedatatypes': lazy('plots', 'hook_plotly'),
    'plotly.io': lazy('plots', 'hook_plotly_io'),
    'altair': lazy('plots', 'hook_altair'),
    'bokeh.io': lazy('plots', 'hook_bokeh'),
    'bokeh.io.showing': lazy('plots', 'hook_bokeh'),
    'bokeh.plotting': lazy('plots', 'hook_bokeh'),
    'IPython': lazy('magic', 'hook_ipython'),
})


# ---------------------------------------------------------------- requests

def answer(m):
    """Answer a question about code or names."""
    reply = {'t': 'reply', 'id': m['id']}
    try:
        ST.user = True
        reply['result'] = part('tools')[m['t']](m)
    except BaseException as e:
        ST.user = False
        reply['error'] = 'The kernel could not answer: %s.' % describe(e)[:300].rstrip('.')
    ST.user = False
    settle()
    try:
        encode(reply)
    except Exception:
        reply = {'t': 'reply', 'id': m['id'], 'error': 'The kernel could not answer.'}
    send(reply)


def ipython_version():
    """Version of IPython if it can be imported, without importing it."""
    if _environ.get('SANDBOOK_NO_IPYTHON'):
        return None
    for p in sys.path:
        try:
            with open(p + '/IPython/core/release.py', encoding='utf-8') as f:
                text = f.read(8192)
        except (OSError, ValueError, TypeError):
            continue
        v = {}
        for line in text.splitlines():
            name, eq, value = line.partition('=')
            if eq and name.strip() in ('_version_major', '_version_minor', '_version_patch'):
                v[name.strip()[9:]] = value.split('#')[0].strip()
        return '%s.%s.%s' % (v.get('major', '?'), v.get('minor', '?'), v.get('patch', '?'))
    return None


def take_descriptors(ancillary):
    fds = []
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            for i in range(0, len(data) - 3, 4):
                fds.append(int.from_bytes(data[i:i + 4], sys.byteorder))
    if len(fds) >= 2:
        _dup2(fds[0], 1)
        _dup2(fds[1], 2)
    for fd in fds:
        if fd > 2:
            _close(fd)


def receive(sock):
    """The next request of the guest."""
    data, ancillary, _, _ = sock.recvmsg(4, _socket.CMSG_SPACE(16), _socket.MSG_CMSG_CLOEXEC)
    if ancillary:
        take_descriptors(ancillary)
    while 0 < len(data) < 4:
        data += sock.recv(4 - len(data))
    if not data:
        _exit(0)  # the guest is gone
    n = int.from_bytes(data, 'big')
    chunks, got = [], 0
    while got < n:
        c = sock.recv(min(n - got, 1 << 20))
        if not c:
            _exit(0)
        chunks.append(c)
        got += len(c)
    return decode(b''.join(chunks))


def main(read):
    global NS, main_module, this, extras
    extras = decode(read(int.from_bytes(read(4), 'big')))
    for fd in (REQ, UP, IN):
        os.set_inheritable(fd, False)
    main_module = _modules['__main__']
    this = _modules['_sandbook']
    NS = main_module.__dict__
    for name in list(NS):
        if not name.startswith('__'):
            del NS[name]
    NS.update(In=[''], Out={}, _=None)
    ST.pid, ST.main = _getpid(), _ident()
    os.register_at_fork(before=settle_text, after_in_child=in_child)
    _thread.start_new_thread(flusher, ())
    sys.argv = ['']
    sys.path.insert(0, '')
    builtins.input = user_input
    builtins.update_display, builtins.clear_output = update_display, clear_output
    if _environ.get('SANDBOOK_NO_IPYTHON'):
        _modules['IPython'] = None
    for name, hook in list(hooks.items()):
        if name in _modules and _modules[name] is not None:
            after(hook, _modules[name])
    try:
        import faulthandler
        faulthandler.enable(2, all_threads=False)
    except Exception:
        pass
    repair()
    version = '%d.%d.%d' % sys.version_info[:3]
    name = {'cpython': 'CPython'}.get(sys.implementation.name, sys.implementation.name)
    ipython = ipython_version()
    features = ['complete', 'inspect', 'is_complete', 'variables', 'stdin', 'display', 'await', 'shell']
    if ipython:
        features.append('magics')
    send({'t': 'ready', 'language': 'python', 'version': version, 'features': features,
          'implementation': '%s %s' % (name, version) + (', IPython %s' % ipython if ipython else '')})
    sock = _socket.socket(fileno=REQ)
    while True:
        try:
            loop = ST.loop
            if loop is not None:
                parts['aio']['idle'](REQ)
            m = receive(sock)
            (execute if m['t'] == 'run' else answer)(m)
            m = None
        except KeyboardInterrupt:
            pass
        except OSError as e:
            if e.errno == 9:
                _exit(70)
            raise
