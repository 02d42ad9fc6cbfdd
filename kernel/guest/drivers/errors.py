# Tracebacks as people and models read them: cells by name, right lines, no
# frame of the driver.
with std():
    import linecache
    import traceback

RED, BOLD, OFF = '\x1b[31m', '\x1b[1m', '\x1b[0m'
MAX_FRAMES = 60
MAX_TEXT = 256 << 10


def user_frames(tb):
    """tb without the driver's own frames at its ends."""
    while tb is not None and tb.tb_frame.f_code.co_filename == FILE:
        tb = tb.tb_next
    last, t = None, tb
    while t is not None:
        if t.tb_frame.f_code.co_filename != FILE:
            last = t
        t = t.tb_next
    if last is not None:
        last.tb_next = None  # such as the handler that raised an interrupt
    return tb


def strip(e, seen):
    """Take the driver's frames off e and everything it was raised from."""
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        e.__traceback__ = user_frames(e.__traceback__)
        for sub in getattr(e, 'exceptions', ()) or ():
            if isinstance(sub, BaseException):
                strip(sub, seen)
        if e.__cause__ is not None:
            strip(e.__cause__, seen)
        e = e.__context__


def format_exception(e):
    """The traceback of e as a list of lines, the last one naming the error."""
    linecache.cache.update(sources)
    strip(e, set())
    deep = 0
    tb = e.__traceback__
    while tb is not None:
        deep += 1
        tb = tb.tb_next
    if isinstance(e, SyntaxError) and e.__traceback__ is None:
        lines = traceback.format_exception_only(type(e), e)
    elif deep > MAX_FRAMES:
        stack = traceback.format_tb(e.__traceback__, limit=MAX_FRAMES // 3)
        tail = traceback.format_tb(e.__traceback__, limit=-(MAX_FRAMES - MAX_FRAMES // 3))
        lines = ['Traceback (most recent call last):\n'] + stack + [
            '  ... %d more frames ...\n' % (deep - MAX_FRAMES)] + tail
        lines += traceback.format_exception_only(type(e), e)
    else:
        lines = traceback.format_exception(type(e), e, e.__traceback__)
    out = []
    for entry in lines:
        out += entry.rstrip('\n').split('\n')
    last = len(out) - 1
    # The line that names the error is the first one of the last entry.
    only = lines[-1].rstrip('\n').split('\n') if lines else []
    name = last - len(only) + 1
    if 0 <= name <= last:
        head, sep, tail = out[name].partition(':')
        out[name] = RED + BOLD + head + OFF + sep + tail
    size, kept = 0, []
    for line in reversed(out):
        size += len(line) + 1
        if size > MAX_TEXT:
            kept.append('... the beginning of this traceback was left out ...')
            break
        kept.append(line)
    kept.reverse()
    return kept
