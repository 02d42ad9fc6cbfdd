# What an editor asks: completion, inspection, whether code is complete, and
# which names there are.
with std():
    import codeop
    import re

SHELL_NAMES = frozenset((
    'In', 'Out', 'exit', 'quit', 'get_ipython', 'display', 'open'))
KNOWN = frozenset(('numpy', 'pandas', 'torch', 'polars', 'scipy', 'xarray', 'jax', 'tensorflow', 'pyarrow', 'PIL'))


def complete(m):
    code, pos = m.get('code', ''), m['pos']
    pos = max(0, min(pos, len(code)))
    start = code.rfind('\n', 0, pos) + 1
    end = code.find('\n', pos)
    line = code[start:end if end >= 0 else len(code)]
    shell = part('magic')['ensure_shell']()
    if shell is not None:
        only_imported()
        text, matches = shell.complete('', line, pos - start)
    else:
        text = re.search(r'[\w.]*$', line[:pos - start]).group()
        matches = plain_matches(text)
    matches = list(dict.fromkeys(matches))[:500]
    return {'status': 'ok', 'matches': matches, 'cursor_start': pos - len(text), 'cursor_end': pos, 'metadata': {}}


def only_imported():
    """Completion names what a module has if it is imported already. Importing
    one to look would run its code, which nobody has asked to run."""
    lib = _modules.get('IPython.core.completerlib')
    if lib is None or getattr(lib.try_import, '_sandbook', False):
        return
    names = lib.try_import

    def try_import(mod, only_modules=False):
        return names(mod, only_modules) if mod.rstrip('.') in _modules else []
    try_import._sandbook = True
    lib.try_import = try_import


def plain_matches(text):
    with std():
        import rlcompleter
    c = rlcompleter.Completer(NS)
    out = []
    for i in range(500):
        s = c.complete(text, i) if text else None
        if s is None:
            break
        out.append(s.rstrip('( \t'))
    return out


def inspect(m):
    code, pos = m.get('code', ''), m['pos']
    pos = max(0, min(pos, len(code)))
    name = name_at(code, pos)
    data = {}
    shell = part('magic')['ensure_shell']()
    if shell is not None and name:
        try:
            data = shell.object_inspect_mime(name, detail_level=m.get('level', 0))
            if not isinstance(data, dict):
                data = {'text/plain': str(data)}
        except KeyError:
            data = {}
    elif name:
        found, obj = resolve(name)
        if found:
            data = {'text/plain': describe_object(name, obj, m.get('level', 0))}
    data = {k: v[:200000] for k, v in data.items() if isinstance(v, str)}
    return {'status': 'ok', 'found': bool(data), 'data': data, 'metadata': {}}


def name_at(code, pos):
    """The dotted name at the cursor, or that of the call it is in."""
    for m in re.finditer(r'[^\W\d][\w.]*', code):
        if m.start() <= pos <= m.end():
            tail = re.match(r'\w*', code[pos:]).group()
            return (code[m.start():pos] + tail).strip('.')
    depth = 0
    for i in range(pos - 1, -1, -1):
        if code[i] == ')':
            depth += 1
        elif code[i] == '(':
            if depth == 0:
                m = re.search(r'[^\W\d][\w.]*$', code[:i])
                return m.group() if m else ''
            depth -= 1
    return ''


def resolve(name):
    first, *rest = name.split('.')
    if first in NS:
        obj = NS[first]
    elif hasattr(builtins, first):
        obj = getattr(builtins, first)
    else:
        return False, None
    for attr in rest:
        try:
            obj = getattr(obj, attr)
        except Exception:
            return False, None
    return True, obj


def describe_object(name, obj, level):
    with std():
        import inspect as ins
    lines = []
    try:
        lines.append('Signature: %s%s' % (name, ins.signature(obj)))
    except (TypeError, ValueError):
        pass
    lines.append('Type:      %s' % type(obj).__name__)
    if type(obj) in SIMPLE:
        lines.append('Value:     %s' % brief(obj))
    doc = ins.getdoc(obj)
    if level:
        try:
            lines += ['Source:', ins.getsource(obj)]
            doc = None
        except (OSError, TypeError):
            pass
    if doc:
        lines += ['Docstring:', doc]
    return '\n'.join(lines)


def is_complete(m):
    code = m.get('code', '')
    if ST.shell is not None:
        status, indent = ST.shell.input_transformer_manager.check_complete(code)
        return {'status': status, 'indent': ' ' * indent if indent else ''}
    lines = code.rstrip('\n').split('\n')
    last = lines[-1]
    indent = re.match(r'[ \t]*', last).group()
    if last.rstrip().endswith(':'):
        return {'status': 'incomplete', 'indent': indent + '    '}
    if last.rstrip().endswith('\\'):
        return {'status': 'incomplete', 'indent': indent}
    try:
        if codeop.compile_command(code if '\n' not in code else code + '\n', '<input>', 'exec') is None:
            return {'status': 'incomplete', 'indent': indent}
    except (SyntaxError, OverflowError, ValueError):
        if needs_ipython(code):
            return {'status': 'complete', 'indent': ''}
        try:
            _compile(code, '<input>', 'exec', _ast.PyCF_ONLY_AST | _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        except SyntaxError:
            return {'status': 'invalid', 'indent': ''}
    if indent and len(lines) > 1 and not code.endswith('\n\n'):
        return {'status': 'incomplete', 'indent': indent}
    return {'status': 'complete', 'indent': ''}


def brief(v, depth=0):
    """A short text of v that calls no code of the user."""
    t = type(v)
    if v is None or t is bool or t is float or t is complex:
        return repr(v)
    if t is int:
        return repr(v) if v.bit_length() < 600 else '<int of %d bits>' % v.bit_length()
    if t is str or t is bytes:
        return repr(v[:200])
    if t in (list, tuple, set, frozenset, dict):
        if not v:
            return repr(v)
        if depth > 2:
            return '...'
        out, size = [], 0
        for x in (v.items() if t is dict else v):
            s = '%s: %s' % (brief(x[0], depth + 1), brief(x[1], depth + 1)) if t is dict else brief(x, depth + 1)
            out.append(s)
            size += len(s)
            if size > 200:
                out.append('...')
                break
        body = ', '.join(out)
        if t is list:
            return '[%s]' % body
        if t is tuple:
            return '(%s%s)' % (body, ',' if len(v) == 1 else '')
        return '{%s}' % body
    if isinstance(v, type):
        return '<class %s>' % type.__dict__['__name__'].__get__(v)
    return '<%s>' % typename(t)


def typename(t):
    return type.__dict__['__qualname__'].__get__(t)


def top_module(t):
    try:
        mod = type.__dict__['__module__'].__get__(t)
    except AttributeError:
        return ''
    return mod.split('.')[0] if type(mod) is str else ''


def variables(m):
    out = []
    hidden = getattr(ST.shell, 'user_ns_hidden', {}) if ST.shell is not None else {}
    module = type(sys)
    for name, v in list(NS.items()):
        if type(name) is not str or name[:1] == '_' or name in SHELL_NAMES:
            continue
        if isinstance(v, module) or (name in hidden and hidden[name] is v):
            continue
        try:
            out.append(variable(name, v))
        except Exception:
            out.append({'name': name[:200], 'type': typename(type(v))})
        if len(out) >= 1000:
            break
    return out


def variable(name, v):
    t = type(v)
    e = {'name': name[:200], 'type': typename(t)[:100]}
    known = top_module(t) in KNOWN
    if known:
        shape = getattr(v, 'shape', None)
        if isinstance(shape, tuple):
            e['shape'] = ' × '.join(str(x) for x in shape)[:100]
        size = getattr(v, 'nbytes', None)
        if type(size) is not int and e['type'] in ('DataFrame', 'Series'):
            usage = v.memory_usage(index=True)
            size = int(usage.sum()) if hasattr(usage, 'sum') else int(usage)
        if isinstance(size, int):
            e['size'] = int(size)
        if e['type'] == 'DataFrame':
            e['value'] = ', '.join(str(c)[:40] for c in list(v.columns)[:20])[:200]
        elif e['type'] == 'ndarray' and v.size <= 20 and v.dtype.kind in 'biufc':
            e['value'] = repr(v)[:200]
        elif getattr(v, 'shape', None) == ():
            e['value'] = str(v)[:200]
        elif hasattr(v, 'dtype'):
            e['value'] = str(v.dtype)[:200]
        return e
    if t in SIMPLE:
        if t in (list, tuple, dict, set, frozenset, str, bytes):
            e['shape'] = '%d' % len(v)
        e['size'] = sys.getsizeof(v)
        e['value'] = brief(v)[:200]
    elif t.__module__ == 'builtins' and e['type'] in ('function', 'builtin_function_or_method'):
        code = getattr(v, '__code__', None)
        if code is not None:
            e['value'] = '%s(%s)' % (v.__name__, ', '.join(code.co_varnames[:code.co_argcount]))
            e['value'] = e['value'][:200]
    else:
        e['value'] = brief(v)[:200]
    return e
