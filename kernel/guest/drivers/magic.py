# Magics, `!command` and `name?`: with IPython when it can be imported, and
# otherwise the few that most cells use. Either way the result is Python source
# that the driver runs as any other.
with std():
    import re
    import subprocess


# ---------------------------------------------------------------- commands

def run_command(argv, stdin=None):
    """Run a program; what it prints goes to the run's own pipes."""
    flush()
    p = subprocess.Popen(argv, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL)
    try:
        if stdin is not None:
            try:
                p.stdin.write(stdin.encode('utf-8'))
                p.stdin.close()
            except BrokenPipeError:
                pass
        code = p.wait()
    except BaseException:
        # An interrupt: the program gets it too, and a second to end.
        try:
            p.send_signal(SIGINT)
            p.wait(1)
        except BaseException:
            p.kill()
            p.wait()
        raise
    NS['_exit_code'] = code
    return code


def shell_argv(text):
    return ['/bin/bash' if os.path.exists('/bin/bash') else '/bin/sh', '-c', text]


def expand(text):
    """Put values of Python names into a command, as IPython does."""
    def value(m):
        if m.group(0) in ('{{', '}}'):
            return m.group(0)[0]
        try:
            return str(_eval(m.group(1) or m.group(2), NS))
        except Exception:
            return m.group(0)
    return re.sub(r'\{\{|\}\}|\{([^{}\n]+)\}|(?<!\$)\$([^\W\d]\w*)', value, text)


def system(command):
    """!command"""
    run_command(shell_argv(expand(command)))


def getoutput(command):
    """name = !command"""
    flush()
    out = subprocess.run(shell_argv(expand(command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    return out.decode('utf-8', 'replace').splitlines()


def script(program, text):
    """%%bash and its like"""
    code = run_command([program], text)
    if code:
        raise MagicError('The %s script ended with code %d.' % (program, code))


class MagicError(Exception):
    """A magic could not do what was asked."""


MagicError.__module__ = 'builtins'


# ---------------------------------------------------------------- without IPython

def transform(source):
    """Python source for a cell that is not Python."""
    shell = ensure_shell()
    if shell is not None:
        return shell.transform_cell(source)
    return transform_plain(source)


def call(function, *args):
    return "__import__('_sandbook').%s(%s)" % (function, ', '.join(repr(a) for a in args))


def transform_plain(source):
    this.system, this.getoutput, this.magic, this.cell_magic, this.help_on = system, getoutput, magic, cell_magic, help_on
    m = re.match(r'\s*%%(\w+)[ \t]*([^\n]*)\n?', source)
    if m:
        return call('cell_magic', m.group(1), m.group(2).strip(), source[m.end():])
    out = []
    lines = source.split('\n')
    i = 0
    while i < len(lines):
        line = lines[i]
        m = re.match(r'^(\s*)(?:([^\W\d][\w., ]*?\s*=\s*)?([!%])(.*)|(\??\??)([^\W\d][\w.]*)(\??\??)\s*)$', line)
        if not m or (m.group(3) is None and not (m.group(5) or m.group(7))):
            out.append(line)
            i += 1
            continue
        indent, target, sign, rest = m.group(1), m.group(2) or '', m.group(3), m.group(4)
        extra = 0
        while rest is not None and rest.endswith('\\') and i + 1 < len(lines):
            i += 1
            extra += 1
            rest = rest[:-1] + lines[i]
        if sign == '!':
            if rest.startswith('!'):
                rest = rest[1:]
            out.append(indent + target + call('getoutput' if target else 'system', rest))
        elif sign == '%':
            name, _, args = rest.strip().partition(' ')
            out.append(indent + target + call('magic', name, args.strip()))
        else:
            out.append(indent + call('help_on', m.group(6)))
        out += [''] * extra
        i += 1
    return '\n'.join(out)


def help_on(name):
    tools = part('tools')
    found, obj = tools['resolve'](name)
    stdout.write((tools['describe_object'](name, obj, 0) if found else 'There is nothing named %s.' % name) + '\n')


def magic(name, args):
    """A line magic."""
    if name == 'pip':
        run_command([sys.executable, '-m', 'pip'] + args.split())
    elif name in ('matplotlib', 'config', 'load_ext', 'reload_ext', 'autoreload'):
        if name == 'matplotlib' or 'InlineBackend' in args or name == 'autoreload' or 'autoreload' in args:
            return
        missing('%' + name)
    elif name == 'cd':
        os.chdir(os.path.expanduser(expand(args) or '~'))
        stdout.write(os.getcwd() + '\n')
    elif name == 'pwd':
        return os.getcwd()
    elif name == 'env':
        key, eq, value = args.partition('=')
        if not args:
            return dict(_environ)
        if not eq:
            return _environ.get(key)
        _environ[key.strip()] = value.strip()
    elif name in ('ls', 'cat', 'mkdir', 'rm', 'cp', 'mv', 'head', 'tail', 'wc', 'less', 'more'):
        system({'less': 'cat', 'more': 'cat'}.get(name, name) + ' ' + args)
    elif name in ('who', 'whos'):
        names = [v['name'] for v in part('tools')['variables']({})]
        stdout.write('   '.join(names) + '\n')
    elif name == 'time':
        timed(args)
    elif name == 'timeit':
        timeit(args)
    elif name in ('run',):
        path = args.split()[0]
        with open(path, encoding='utf-8') as f:
            _exec(_compile(f.read(), path, 'exec', 0, True), NS)
    else:
        missing('%' + name)


def missing(what):
    raise MagicError('%s needs IPython, which is not installed in this sandbox.' % what)


def timed(code):
    import time
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        run_source(code, register('%time', code))
    finally:
        stdout.write('CPU time: %.3g s, wall time: %.3g s\n' % (time.process_time() - cpu, time.perf_counter() - wall))


def timeit(code):
    with std():
        import timeit as t
    n, r = 0, 3
    while True:
        m = re.match(r'-([nr])\s*(\d+)\s+', code)
        if not m:
            break
        n, r = (int(m.group(2)), r) if m.group(1) == 'n' else (n, int(m.group(2)))
        code = code[m.end():]
    timer = t.Timer(code, globals=NS)
    n = n or timer.autorange()[0]
    best = min(timer.repeat(max(1, r), n)) / n
    stdout.write('%.3g s per loop (best of %d times %d loops)\n' % (best, r, n))


def cell_magic(name, args, body):
    if name in ('bash', 'sh', 'shell'):
        script('/bin/bash' if name == 'bash' and os.path.exists('/bin/bash') else '/bin/sh', body)
    elif name == 'writefile':
        words = args.split()
        append = words[:1] == ['-a']
        path = words[-1]
        with open(path, 'a' if append else 'w', encoding='utf-8') as f:
            f.write(body)
        stdout.write('%s %s\n' % ('Appended to' if append else 'Wrote', path))
    elif name == 'time':
        timed(body)
    elif name == 'timeit':
        timeit(body)
    elif name == 'capture':
        with std():
            import contextlib
            import io
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run_source(body, register('%%capture', body))
    elif name in ('html', 'HTML'):
        publish({'text/html': body, 'text/plain': '<HTML>'})
    elif name in ('markdown', 'latex', 'svg'):
        publish({{'svg': 'image/svg+xml'}.get(name, 'text/' + name): body, 'text/plain': '<%s>' % name})
    else:
        missing('%%' + name)


# ---------------------------------------------------------------- with IPython

def ensure_shell():
    """The IPython shell, made on first use; None when there is no IPython."""
    if ST.shell is None and _modules.get('IPython', 0) is not None:
        try:
            with std():
                import IPython
        except ImportError:
            return None
        if ST.shell is None:
            hook_ipython(IPython)
    return ST.shell


def hook_ipython(IPython):
    if ST.shell is not None:
        return
    with std():
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets import Type
        from traitlets.config import Config

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kw):
            data = clean(data)
            if data:
                publish(data, metadata, transient, update)

        def clear_output(self, wait=False):
            clear_output(wait)

    class Shell(InteractiveShell):
        display_pub_class = Type(Publisher)

        def init_history(self):
            super().init_history()
            self.history_manager.enabled = False

        def init_virtualenv(self): pass
        def init_hooks(self):
            super().init_hooks()
            self.set_hook('show_in_pager', show_in_pager, 99)

        def system(self, cmd):
            run_command(shell_argv(self.var_expand(cmd, depth=1)))
        system_piped = system_raw = system

        def enable_matplotlib(self, gui=None):
            inline_config(self)
            return 'inline', 'inline'

        def enable_pylab(self, gui=None, import_all=True):
            _exec('import numpy, matplotlib\nfrom matplotlib import pyplot as plt\nnp = numpy\n' + (
                'from matplotlib.pylab import *\nfrom numpy import *\n' if import_all else ''), NS)
            return 'inline', 'inline', []

        def enable_gui(self, gui=None): pass

        def ask_exit(self):
            raise SystemExit

    def show_in_pager(self, data, start=0, screen_lines=0, pager_cmd=None):
        if isinstance(data, dict):
            data = data.get('text/plain', '')
        stdout.write(str(data).rstrip('\n') + '\n')

    c = Config()
    c.HistoryManager.enabled = False
    c.HistoryManager.hist_file = ':memory:'
    c.InteractiveShell.colors = 'NoColor'
    c.InteractiveShell.autocall = 0
    c.InteractiveShell.autoindent = False
    c.IPCompleter.use_jedi = False
    keep = {k: NS.get(k) for k in ('In', 'Out', '_', '__', '___') if k in NS}
    leave = {k: getattr(builtins, k) for k in ('exit', 'quit') if hasattr(builtins, k)}
    saved = builtins.input, sys.excepthook, sys.displayhook, sys.stdout, sys.stderr
    Shell._instance = None
    shell = Shell(user_module=main_module, user_ns=NS, config=c)
    # Whoever asks for the shell finds ours.
    for cls in Shell.__mro__:
        if cls.__dict__.get('_instance', 0) is None or cls in (Shell, InteractiveShell):
            cls._instance = shell
    from traitlets.config import SingletonConfigurable
    SingletonConfigurable._instance = None
    builtins.input, sys.excepthook, sys.displayhook, sys.stdout, sys.stderr = saved
    shell.builtin_trap.activate()
    builtins.display = display
    for k, v in leave.items():
        setattr(builtins, k, v)  # Python's own, which end the cell
    NS.update(keep)
    NS['get_ipython'] = shell.get_ipython
    for k in leave:
        NS.pop(k, None)
    ST.shell = shell

    original = shell.run_cell_magic

    def run_cell_magic(name, line, cell):
        if name in ('bash', 'sh') and not line.strip():
            return script('/bin/bash' if name == 'bash' and os.path.exists('/bin/bash') else '/bin/sh', cell)
        return original(name, line, cell)
    shell.run_cell_magic = run_cell_magic
    if 'matplotlib' in _modules:
        inline_config(shell)
    patch_display()


def patch_display():
    """IPython.display works on our display data, with the shell or without."""
    mod = _modules.get('IPython.core.display_functions') or _modules.get('IPython.core.display')
    for name, f in (('display', display), ('update_display', update_display), ('clear_output', clear_output)):
        for m in ('IPython.core.display_functions', 'IPython.core.display', 'IPython.display'):
            mod = _modules.get(m)
            if mod is not None and hasattr(mod, name):
                setattr(mod, name, f)


def inline_config(shell):
    """Let %config InlineBackend… say in which formats plots are shown."""
    if getattr(shell, '_sandbook_inline', None):
        return
    try:
        from matplotlib_inline.config import InlineBackend
    except ImportError:
        return
    cfg = InlineBackend.instance(parent=shell)
    cfg.shell = shell
    if cfg not in shell.configurables:
        shell.configurables.append(cfg)
    shell._sandbook_inline = cfg
