# Top-level await on one event loop that lasts as long as the kernel. Tasks a
# cell leaves behind go on between cells.
with std():
    import asyncio


def the_loop():
    loop = ST.loop
    if loop is None or loop.is_closed():
        loop = ST.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def run(coro):
    """Run the coroutine of a cell to its end."""
    loop = the_loop()
    task = loop.create_task(coro)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            try:
                loop.run_until_complete(asyncio.wait([task], timeout=1))
            except BaseException:
                pass
        elif not task.cancelled():
            task.exception()
        raise


def idle(fd):
    """Run what cells left on the loop until the guest asks for something."""
    loop = ST.loop
    if loop is None or loop.is_closed() or loop.is_running():
        return
    try:
        if not asyncio.all_tasks(loop):
            return
        loop.add_reader(fd, loop.stop)
        try:
            loop.run_forever()
        finally:
            loop.remove_reader(fd)
    except Exception:
        ST.loop = None
